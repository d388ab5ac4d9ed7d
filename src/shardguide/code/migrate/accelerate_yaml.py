"""Accelerate's YAML from FSDP1 to FSDP2: single lines are changed, so that comments and order stay.

What the keys mean: ``FullyShardedDataParallelPlugin`` in accelerate/utils/dataclasses.py, and commands/launch.py, which hands them
over. Accelerate's own ``to-fsdp2`` turns hybrid sharding into sharding over all ranks, replication into sharding, and a
full checkpoint that nobody had to ask for into a sharded one; here the first becomes a mesh, the second is refused and
the third is written out.
"""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple

from .records import Todo, Use

_PREFIX = "fsdp_"
_STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")  # 1 to 5
_RESHARD = {"FULL_SHARD": True, "SHARD_GRAD_OP": False, "HYBRID_SHARD": True, "HYBRID_SHARD_ZERO2": False}
_GONE = (
    "backward_prefetch",
    "backward_prefetch_policy",  # the older name
    "forward_prefetch",
    "sync_module_states",
    "use_orig_params",
    "limit_all_gathers",
)
_LEAST = (2, 6)  # accelerate's FSDP2 asks for this release of PyTorch


class Converted(NamedTuple):
    """The new text with what became of each key; the text is as it was where the file is refused."""

    text: str
    uses: tuple[Use, ...]
    todos: tuple[Todo, ...]


class _Key(NamedTuple):
    """One key of the file, lines from 0."""

    name: str
    value: Any  # a scalar; None for a list or mapping
    line: int
    last: int  # the last line of its value
    column: int
    start: tuple[int, int]  # of the value: line and column
    end: tuple[int, int]


def convert(text: str, path: str, release: str) -> Converted | None:
    """The configuration for FSDP2. None where the file configures no FSDP1, so that there is nothing to do.

    Raises UnusableInput for a file that accelerate could not read either.
    """
    from shardguide.readers.accelerate_yaml import read, recognised

    if "fsdp" not in text.lower() or not recognised(text):
        return None
    read(text, path)  # refuses hostile YAML before anything else looks at it
    top, inner, flow = _keys(text)
    kind = str(top["distributed_type"].value if "distributed_type" in top else "FSDP").upper()
    if not inner or kind != "FSDP" or str(_value(inner, "version", 1)) == "2":
        return None
    return _Conversion(text, path, top, inner, flow).run(release)


def _keys(text: str) -> tuple[dict[str, _Key], dict[str, _Key], bool]:
    """The keys at the top, those of ``fsdp_config`` without their prefix, and whether that is written in braces."""
    import yaml

    loader = yaml.SafeLoader(text)
    try:
        root: Any = loader.get_single_node()
        top: dict[str, _Key] = {}
        inner: dict[str, _Key] = {}
        flow = False
        for key, value in root.value:
            top[str(key.value)] = _key(loader, key, value)
            if key.value == "fsdp_config" and isinstance(value, yaml.MappingNode):
                flow = bool(value.flow_style)
                for name, given in value.value:
                    inner[str(name.value).removeprefix(_PREFIX)] = _key(loader, name, given)
        return top, inner, flow
    finally:
        loader.dispose()


def _key(loader: Any, key: Any, value: Any) -> _Key:
    import yaml

    scalar = loader.construct_object(value) if isinstance(value, yaml.ScalarNode) else None
    start, end = value.start_mark, value.end_mark
    # The end of a block collection is where the next token begins.
    last = (
        end.line if isinstance(value, yaml.ScalarNode) or value.flow_style else max(key.start_mark.line, end.line - 1)
    )
    return _Key(
        str(key.value),
        scalar,
        key.start_mark.line,
        last,
        key.start_mark.column,
        (start.line, start.column),
        (end.line, end.column),
    )


def _value(keys: dict[str, _Key], name: str, default: Any) -> Any:
    return keys[name].value if name in keys and keys[name].value is not None else default


def _true(value: Any) -> bool:
    return str(value).lower() in ("true", "yes", "on", "1")


class _Conversion:
    """One file on its way."""

    def __init__(self, text: str, path: str, top: dict[str, _Key], inner: dict[str, _Key], flow: bool) -> None:
        self.text, self.path, self.top, self.inner, self.flow = text, path, top, inner, flow
        self.lines = text.split("\n")
        self.uses: list[Use] = []
        self.todos: list[Todo] = []
        self.added: list[str] = []  # in fsdp_config
        self.after: list[str] = []  # at the top, after fsdp_config

    def run(self, release: str) -> Converted:
        refused = self._refusal(release)
        if refused:
            self._todo(*refused)
            self.uses = [self._use(one, "left", refused[3]) for one in self.inner.values()]
            return Converted(self.text, tuple(self.uses), tuple(self.todos))
        self._strategy()
        for name, key in self.inner.items():
            if name in _GONE:
                self._gone(name, key)
            elif name not in ("version", "sharding_strategy", "reshard_after_forward"):
                self.uses.append(self._use(key, "kept", "FSDP2 reads it as it is"))
        self._checkpoints()
        self._checks(release)
        self._version()
        return Converted(self._result(), tuple(self.uses), tuple(self.todos))

    # What stops the conversion.

    def _refusal(self, release: str) -> tuple[_Key, str, str, str, tuple[str, ...]] | None:
        where = self.top["fsdp_config"]
        strategy, key = self._chosen()
        if self.flow:
            why = "Its lines are changed one by one, and here there is one line for all keys."
            return where, "accelerate-flow", "Write fsdp_config with one key a line and migrate again.", why, ()
        if release and tuple(int(part) for part in release.split(".")[:2]) < _LEAST:
            why = f"Accelerate's FSDP2 needs PyTorch 2.6 or newer; this is for {release}."
            return where, "accelerate-release", "Stay with FSDP1, or take a newer PyTorch.", why, ()
        if strategy == "NO_SHARD":
            what = "Remove fsdp_config and set distributed_type to MULTI_GPU (DDP), or choose a strategy that shards."
            why = "NO_SHARD keeps a replica on every rank, which FSDP2 has no form for; sharding instead would change the training."
            return key or where, "accelerate-no-shard", what, why, ("fsdp1.no_shard",)
        if strategy not in _RESHARD:
            what = f"Write one of {', '.join(_STRATEGIES)} for the strategy."
            return key or where, "accelerate-strategy", what, f"{strategy} is no strategy of FSDP1.", ()
        if strategy.startswith("HYBRID"):
            if self.top.get("parallelism_config"):
                what = "Give the sizes of replication and sharding in parallelism_config by hand and set fsdp_version to 2."
                why = "The file has a parallelism_config already; what it means next to FSDP1's hybrid strategy is not defined."
                return self.top["parallelism_config"], "accelerate-hybrid", what, why, ("fsdp2.mesh.hsdp",)
            sizes = self._sizes()
            if not sizes:
                what = "Write num_processes (over all machines) and num_machines, and migrate again."
                why = "Hybrid sharding needs the number of machines and of ranks in each; FSDP1 finds them out, FSDP2 must be told."
                return key or where, "accelerate-hybrid", what, why, ("fsdp2.mesh.hsdp",)
            if sizes[0] > 1 and sizes[1] == 1:
                what = "Remove fsdp_config and set distributed_type to MULTI_GPU (DDP), or choose FULL_SHARD."
                why = "With one rank on each machine hybrid sharding has nothing to shard; Accelerate refuses such a mesh for FSDP2."
                return key or where, "accelerate-hybrid", what, why, ("fsdp1.hybrid.groups",)
        return None

    def _chosen(self) -> tuple[str, _Key | None]:
        """The strategy by name, and the key that says so."""
        key = self.inner.get("sharding_strategy") or self.inner.get("reshard_after_forward")
        value = str(key.value if key and key.value is not None else "FULL_SHARD").upper().removeprefix("_")
        if value in ("1", "2", "3", "4", "5"):
            value = _STRATEGIES[int(value) - 1]
        return value, key

    def _sizes(self) -> tuple[int, int] | None:
        """Machines, and ranks on each; None where the file doesn't say so."""
        ranks, machines = _value(self.top, "num_processes", 0), _value(self.top, "num_machines", 1)
        whole = all(isinstance(one, int) and not isinstance(one, bool) and one > 0 for one in (ranks, machines))
        return (machines, ranks // machines) if whole and ranks % machines == 0 else None

    # What is changed.

    def _strategy(self) -> None:
        strategy, key = self._chosen()
        reshard = "true" if _RESHARD[strategy] else "false"
        other = self.inner.get("reshard_after_forward")
        if key is None:
            self.added.append(f"fsdp_reshard_after_forward: {reshard}")
        else:
            self._set(key, "fsdp_reshard_after_forward", reshard)
            self.uses.append(self._use(key, "converted", f"fsdp_reshard_after_forward: {reshard}"))
            if other and other is not key:
                self._remove(other)
                self.uses.append(self._use(other, "converted", "the strategy says it"))
        if key and key is other and strategy != "FULL_SHARD":
            what = f"Check that {strategy} is meant: Accelerate 1.15 does not hand it on."
            why = "For FSDP1 its launcher always sets the sharding strategy too, FULL_SHARD where the file has none, and that one counts."
            self._todo(key, "accelerate-strategy-ignored", what, why, ())
        if strategy.startswith("HYBRID"):
            machines, ranks = self._sizes() or (1, 1)
            if machines == 1:
                what = "Nothing to replicate: with one machine hybrid sharding is sharding over all ranks, and is written so."
                why = "FSDP1 shards inside a machine and replicates over machines."
                self._todo(key or self.top["fsdp_config"], "accelerate-hybrid", what, why, ("fsdp1.hybrid.groups",))
            else:
                self.after += [
                    "parallelism_config:",
                    f"  parallelism_config_dp_replicate_size: {machines}",
                    f"  parallelism_config_dp_shard_size: {ranks}",
                ]

    def _gone(self, name: str, key: _Key) -> None:
        self._remove(key)
        value = str(key.value).upper()
        reason = "FSDP2 does without it"
        if name.startswith("backward_prefetch") and value not in ("BACKWARD_PRE", "1"):
            why = "FSDP2 gathers the next unit before the gradients of this one, as BACKWARD_PRE does: two units are whole at the peak."
            what = f"Look at the peak of memory: {value} is gone."
            self._todo(
                key, "accelerate-prefetch", what, why, ("fsdp1.backward_prefetch.post", "practice.backward_prefetch")
            )
        elif name == "forward_prefetch" and _true(value):
            why = "Accelerate's FSDP2 has no explicit forward prefetching; PyTorch has set_modules_to_forward_prefetch."
            what = "Look at the time of forward, and name the units to prefetch in the code if it got longer."
            self._todo(key, "accelerate-prefetch", what, why, ("fsdp2.prefetch.forward",))
        elif name == "use_orig_params" and not _true(value):
            why = (
                "FSDP2's optimizer sees the original parameters: groups chosen by name or shape now hold what they say."
            )
            what = "Look at parameter groups: with flat parameters they did not hold what they say."
            self._todo(key, "accelerate-orig-params", what, why, ("fsdp1.use_orig_params",))
        self.uses.append(self._use(key, "converted", reason))

    def _checkpoints(self) -> None:
        key = self.inner.get("state_dict_type")
        if key is None:
            # The default of FSDP1 is one file, that of FSDP2 is shards.
            self.added.append("fsdp_state_dict_type: FULL_STATE_DICT")
        elif str(key.value).upper() in ("LOCAL_STATE_DICT", "2"):
            self._set(key, key.name, "SHARDED_STATE_DICT")
            what = "Save once in sharded form with FSDP1 before you change over: checkpoints of local shards can't be read afterwards."
            why = "FSDP2 has no local state dict; its shards are DTensors."
            self._todo(key, "accelerate-local-state-dict", what, why, ("fsdp1.local_state_dict",))

    def _checks(self, release: str) -> None:
        wrap = self.inner.get("auto_wrap_policy")
        if wrap and str(wrap.value).upper() in ("SIZE_BASED_WRAP", "2"):
            what = "Name the layers instead: TRANSFORMER_BASED_WRAP with fsdp_transformer_layer_cls_to_wrap."
            why = (
                "Accelerate's FSDP2 shards every module with more parameters than the limit, whole stacks of layers included, "
                "and fully_shard refuses a ModuleList; FSDP1 counted only what no unit held yet."
            )
            self._todo(wrap, "accelerate-size-wrap", what, why, ("fsdp1.size_wrap_policy", "fsdp2.containers"))
        ignored = self.inner.get("ignored_modules")
        if ignored and release and tuple(int(part) for part in release.split(".")[:2]) < (2, 7):
            what = "Take PyTorch 2.7 or newer, or do without ignored modules."
            self._todo(
                ignored, "accelerate-ignored", what, f"{release} can't leave parameters out.", ("fsdp2.ignored_params",)
            )

    def _version(self) -> None:
        key = self.inner.get("version")
        if key:
            self._set(key, key.name, "2")
            self.uses.append(self._use(key, "converted", "fsdp_version: 2"))
        else:
            self.added.append("fsdp_version: 2")

    # Lines.

    def _set(self, key: _Key, name: str, value: str) -> None:
        line = self.lines[key.line]
        if key.start[0] != key.line or key.end[0] != key.line or key.start == key.end:
            raise UnusableInput(f"{self.path}, line {key.line + 1}: {key.name} has no value on its line.")
        self.lines[key.line] = f"{line[: key.column]}{name}: {value}{line[key.end[1] :]}"

    def _remove(self, key: _Key) -> None:
        rest = self.lines[key.last][key.end[1] :].strip() if key.end[0] == key.last else ""
        for line in range(key.line, key.last + 1):
            self.lines[line] = _NOTHING
        if rest.startswith("#"):
            self.lines[key.line] = f"{' ' * key.column}{rest}"

    def _result(self) -> str:
        indent = min(key.column for key in self.inner.values())
        last = max(key.last for key in self.inner.values())
        made = [f"{' ' * indent}{one}" for one in self.added] + self.after
        self.lines[last + 1 : last + 1] = [_ended(one, self.text) for one in made]
        if not self.lines[last + 1 + len(made) :]:  # the file ended without a line break
            self.lines.append("")
        return "\n".join(line for line in self.lines if line is not _NOTHING)

    # Records.

    def _use(self, key: _Key, status: str, reason: str) -> Use:
        return Use(self.path, key.line + 1, key.column + 1, "accelerate", key.name, status, reason)

    def _todo(self, key: _Key, code: str, what: str, why: str, claims: tuple[str, ...]) -> None:
        self.todos.append(Todo(self.path, key.line + 1, key.column + 1, code, what, why, claims))


_NOTHING = "\0"  # a line that goes; no YAML holds this character


def _ended(line: str, text: str) -> str:
    return f"{line}\r" if "\r\n" in text else line
