"""One name of the API, and what changed between releases: against PyTorch 2.13.0 itself and facts read in the releases' sources."""

from __future__ import annotations

import importlib
import inspect
import re
import warnings
from pathlib import Path

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.knowledge import api, releases
from shardguide.workflows.changes import changes
from shardguide.workflows.reference import compare, name

FSDP2 = "torch.distributed.fsdp.fully_shard"


def torch_2_13():
    torch = pytest.importorskip("torch", reason="compares with PyTorch itself")
    if not torch.__version__.startswith("2.13"):
        pytest.skip("another PyTorch than 2.13 is installed here")
    return torch


def real(dotted):
    parts = dotted.split(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for cut in range(len(parts), 0, -1):
            try:
                found = importlib.import_module(".".join(parts[:cut]))
            except ImportError:
                continue
            for part in parts[cut:]:
                found = getattr(found, part)
            return found
    raise AttributeError(dotted)


def history(asked, torch="2.15"):
    return {item["release"]: item["changes"] for item in name(asked, torch, None)["history"]}


# --- a name through the releases ------------------------------------------------------------------------------------------


def test_fully_shard_through_the_releases():
    """Read in the sources of every release: 2.7 ignored_params, 2.8 the default None, 2.12 dp_mesh_dims."""
    record = name("fully_shard", "2.13", None)
    assert record["name"] == FSDP2 and record["kind"] == "function" and record["releases"] == "2.6-2.15"
    inner = {"torch.distributed.fsdp._fully_shard.fully_shard": "2.6-2.15"}
    assert record["also"] == {"torch.distributed._composable.fsdp.fully_shard": "2.3-2.15"} | inner
    told = {item["release"]: item["changes"] for item in record["history"]}
    assert list(told) == ["2.6", "2.7", "2.8", "2.12"]
    assert told["2.7"] == ["+ ignored_params: set[Parameter] | None = None"]
    assert told["2.8"] == ["reshard_after_forward: default True → None"]
    assert told["2.12"] == ["+ dp_mesh_dims: DataParallelMeshDims | None = None"]


@pytest.mark.parametrize(("release", "arguments"), [("2.3", 4), ("2.4", 5), ("2.5", 5)])
def test_a_release_that_has_it_under_another_name(release, arguments):
    """2.3 to 2.5 have FSDP2 in _composable only; 2.4 brought offload_policy."""
    record = name("fully_shard", release, None)
    assert not record["in_release"] and record["instead"] == "torch.distributed._composable.fsdp.fully_shard"
    assert len([item for item in record["parameters"] if item["name"] != "*"]) == arguments
    assert {item["name"]: item["default"] for item in record["parameters"]}["reshard_after_forward"] == "True"


def test_a_release_that_has_it_not_at_all():
    record = name(FSDP2, "2.1", None)
    assert not record["in_release"] and not record["instead"] and record["parameters"] is None


def test_functions_for_several_gpus_are_gone_since_2_2():
    functions = ("broadcast", "all_reduce", "reduce", "all_gather", "reduce_scatter")
    for function in functions:
        assert api.since(f"torch.distributed.{function}_multigpu") == "2.0-2.1"
        assert history(f"dist.{function}_multigpu")["2.2"] == ["gone"]


@pytest.mark.parametrize(
    ("dotted", "expected"),
    [  # read in torch/distributed/distributed_c10d.py of every release
        ("torch.distributed.all_gather_into_tensor", "2.13-2.14"),
        ("torch.distributed.reduce_scatter_tensor", "2.13-2.14"),
        ("torch.distributed.gather_into_tensor", "2.14"),
        ("torch.distributed.all_reduce", ""),
        ("torch.distributed.checkpoint.save_state_dict", "2.2-2.15"),
        ("torch.distributed.nn.functional.all_reduce", "2.12-2.15"),  # by way of a function that warns for it
        ("torch.distributed.fsdp.FullyShardedDataParallel.full_optim_state_dict", "2.0-2.15"),
        ("torch.nn.ModuleList", ""),  # its base class was written beside a deprecated one
        ("torch.distributed.launch.main", "2.0-2.15"),  # a warning first, a decorator under another name later
        ("torch.cuda.amp.GradScaler", "2.4-2.15"),  # its constructor carries the decorator
    ],
)
def test_deprecations(dotted, expected):
    assert releases.ranges([minor for minor in releases.known() if api.deprecated(dotted, minor)]) == expected


@pytest.mark.torch
def test_what_the_decorator_left_on_the_objects_of_2_13():
    """``typing_extensions.deprecated`` writes its message to ``__deprecated__``."""
    torch_2_13()
    checked = 0
    for dotted in api.names():
        if api.exists(dotted, "2.13"):
            try:
                found = real(dotted)
            except AttributeError:
                continue
            # of ``old = deprecated(...)(new)`` the new function carries the message too, but is no wrapper
            marked = inspect.isclass(found) or hasattr(found, "__wrapped__")
            words = vars(found).get("__deprecated__") if marked else None
            if isinstance(words, str):
                said = api.deprecated(dotted, "2.13").removesuffix(" …")
                if said == "deprecated":  # the docstring's own bare marker, which the resolver reads first
                    continue
                assert said and " ".join(words.split()).startswith(said), dotted
                checked += 1
    assert checked > 10


def test_a_deprecation_that_came_and_went():
    told = history("all_gather_into_tensor")
    assert any(item.startswith("deprecated: ") and "all_gather_single" in item for item in told["2.13"])
    assert told["2.15"] == ["no longer deprecated"]


def test_an_argument_that_the_docstring_calls_deprecated():
    assert any("group_name" in item for item in name("init_process_group", "2.13", None)["warns"])


def test_annotations_in_one_spelling():
    """``Optional[X]`` became ``X | None`` in the sources; nothing changed about the function."""
    assert not [item for changes in history("torch.nn.utils.clip_grad_norm_").values() for item in changes[1:]]
    for dotted in api.names():
        for minor in ("2.0", "2.15"):
            found = api.entry(dotted, minor)
            texts = [item[2] for item in found.call or ()] + [found.returns] if found else []
            assert not any(re.search(r"\b(?:Optional|Union|List|Dict|Tuple)\[", text) for text in texts), (
                dotted,
                texts,
            )


def test_members_and_inherited_members():
    record = name("FSDPModule.reshard", "2.13", None)
    assert record["name"] == "torch.distributed.fsdp.FSDPModule.reshard" and record["kind"] == "method"
    record = name("FSDP.state_dict", "2.13", None)
    assert record["defined_as"] == "torch.nn.Module.state_dict"
    assert "set_modules_to_forward_prefetch" in name("FSDPModule", "2.13", None)["members"]
    assert "set_reshard_after_forward" not in name("FSDPModule", "2.7", None)["members"]


# --- torchrun and the environment -----------------------------------------------------------------------------------------


@pytest.mark.torch
def test_every_option_of_torchrun_in_2_13(monkeypatch):
    torch_2_13()
    from torch.distributed.run import get_args_parser

    actions = [action for action in get_args_parser()._actions if action.option_strings and action.dest != "help"]
    mine = {item: found for item in api.options() if (found := api.option(item, "2.13"))}
    assert len(actions) == len(mine)
    for action in actions:
        (found,) = [item for item in mine.values() if set(item.spellings) == set(action.option_strings)]
        assert found.flag == (action.nargs == 0), found.name
        if not found.flag:
            assert (
                found.default in (repr(action.default), "", "SignalsToHandle") or str(action.default) in found.default
            )
        if found.env:
            monkeypatch.setenv(found.env, "0" if found.flag else "17")
    changed = {action.dest: action.default for action in get_args_parser()._actions}
    for found in mine.values():
        if found.env and not found.flag:
            dest = (
                max((item for item in found.spellings if item.startswith("--")), key=len).strip("-").replace("-", "_")
            )
            assert changed[dest] in ("17", 17, 17.0), found.name


def test_options_through_the_releases():
    """Read in torch/distributed/run.py of the releases."""
    assert history("--master-port")["2.12"] == ["default 29500 → None"]
    assert name("--nproc_per_node", "2.13", None)["name"] == "--nproc-per-node"
    assert name("PET_NNODES", "2.13", None)["name"] == "--nnodes"
    assert name("--shutdown-timeout", "2.15", None)["releases"] == "2.12-2.15"
    assert name("--log-line-prefix-template", "2.15", None)["releases"] == "2.14-2.15"


@pytest.mark.torch
def test_every_variable_that_a_plain_search_finds_in_2_13():
    torch = torch_2_13()
    root = Path(torch.__file__).parent
    found = {}
    for file in sorted((root / "distributed").rglob("*.py")):
        text = re.sub(r'"""[\s\S]*?"""', "", file.read_text(encoding="utf-8"))
        for match in re.finditer(r"(?:environ\.get\(|environ\[|getenv\()\s*\"([A-Z][A-Z0-9_]+)\"(?!\] =)", text):
            found.setdefault(match[1], set()).add(file.relative_to(root.parent).as_posix())
    assert len(found) > 25
    for variable, files in found.items():
        mine = api.variable(variable, "2.13")
        assert mine is not None and files <= {file for file, _ in mine.read}, variable


def test_variables_through_the_releases():
    assert name("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2.13", None)["releases"] == "2.2-2.15"
    record = name("TORCH_NCCL_BLOCKING_WAIT", "2.13", None)  # read in compiled code; the texts name it
    assert not record["read"] and record["named"]
    with pytest.raises(UnusableInput):
        name("TORCH_NCCL_ASYNC_ERROR_HANDLNG", "2.13", None)


# --- which name is meant -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "dotted"),
    [
        ("fully_shard", FSDP2),
        ("DTensor.full_tensor", "torch.distributed.tensor.DTensor.full_tensor"),
        ("torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",) * 2,
        ("DDP", "torch.nn.parallel.DistributedDataParallel"),
        ("dcp.save", "torch.distributed.checkpoint.save"),
        ("all_reduce", "torch.distributed.all_reduce"),
        ("init_device_mesh", "torch.distributed.device_mesh.init_device_mesh"),
        ("clip_grad_norm_", "torch.nn.utils.clip_grad_norm_"),
        ("torch.distributed.fsdp", "torch.distributed.fsdp"),
    ],
)
def test_names_that_are_found(asked, dotted):
    record = name(asked, "2.13", None)
    assert record["name"] == dotted and record["in_release"]


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("fuly_shard", FSDP2),
        ("torch.distributed.all_redcue", "torch.distributed.all_reduce"),
        ("--nproc-per-nod", "--nproc-per-node"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLIN", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
        ("state_dict", "torch.nn.Module.state_dict"),  # several objects
        *((odd, "") for odd in ("", ".", "..", "torch.", "x" * 100_000, '"a"', "a\nb", "\\", "torch.distributed.ﬁ", "@files", "$RANK")),
    ],
)  # fmt: skip
def test_names_that_are_not(asked, near):
    with pytest.raises(UnusableInput, match=r"\.$") as caught:
        name(asked, "2.13", None)
    assert near in str(caught.value) and len(str(caught.value)) < 700


# --- the PyTorch at hand -----------------------------------------------------------------------------------------------------


@pytest.mark.torch
def test_file_and_line_in_the_pytorch_at_hand():
    torch = torch_2_13()
    site = str(Path(torch.__file__).parents[1])
    checked = 0
    for asked in (
        *(FSDP2, "torch.distributed.fsdp.FSDPModule.reshard", "DTensor.full_tensor", "dist.all_reduce"),
        *(
            "torch.distributed.fsdp.FullyShardedDataParallel.state_dict",
            "torch.utils.checkpoint.checkpoint",
            "DDP.no_sync",
        ),
        *("torch.amp.GradScaler.unscale_", "torch.distributed.checkpoint.save", "torch.nn.utils.clip_grad_norm_"),
    ):
        record = name(asked, None, site)
        found = inspect.unwrap(real(record["name"]))
        assert record["installed"]["file"] == str(Path(inspect.getsourcefile(found)).relative_to(site))
        lines = Path(inspect.getsourcefile(found)).read_text(encoding="utf-8").splitlines()
        line = lines[record["installed"]["line"] - 1].strip()
        assert line.startswith((f"def {found.__name__}(", f"class {found.__name__}")), (asked, line)
        first = inspect.getsourcelines(found)[1]  # the first decorator, where there is one
        assert first <= record["installed"]["line"] <= first + 12
        checked += 1
    assert checked == 10


def compiled_from(found):
    """The file that an object's code was compiled from: ``__module__`` is rewritten for some classes."""
    methods = [item for item in vars(found).values() if inspect.isfunction(item)] if inspect.isclass(found) else [found]
    files = {inspect.unwrap(item).__code__.co_filename for item in methods if inspect.isfunction(inspect.unwrap(item))}
    return files if inspect.isfunction(found) else {file for file in files if "site-packages/torch" in file}


@pytest.mark.torch
def test_what_is_found_where_in_a_whole_release():
    """Every function and class of the index is located in the file that its code was compiled from."""
    torch = torch_2_13()
    site = Path(torch.__file__).parents[1]
    same = 0
    for dotted in api.names():
        found = api.entry(dotted, "2.13")
        if found is None or found.kind not in ("function", "class") or found.name != dotted:
            continue
        try:
            files = compiled_from(real(dotted))
        except AttributeError:
            continue
        where = api.place(dotted, "2.13")
        assert where is not None, dotted
        if dotted == "torch.distributed._functional_collectives.is_torchdynamo_compiling":
            continue  # defined there in the branch for builds without the compiler, imported from torch.compiler in ours
        if files and not where[0].endswith(".pyi"):
            assert str(site / where[0]) in files, (dotted, where, files)
            same += 1
    assert same > 500


@pytest.mark.torch
def test_signature_is_that_of_inspect():
    torch_2_13()
    for dotted in (
        FSDP2,
        "torch.distributed.init_process_group",
        "torch.distributed.checkpoint.save",
        "torch.amp.GradScaler",
    ):
        record = name(dotted, "2.13", None)
        wanted = [
            (item.name, item.default is not item.empty) for item in inspect.signature(real(dotted)).parameters.values()
        ]
        assert [
            (item["name"], item["default"] is not None) for item in record["parameters"] if item["name"] != "*"
        ] == wanted


@pytest.mark.torch
def test_what_classes_inherit():
    """Public methods that Python finds on a class are found in the index as well, if a class in the index defines them."""
    torch_2_13()
    owners = set()
    for item in api.names():
        found = api.entry(item, "2.13")
        if found is not None and found.kind == "class":
            try:
                owners.add(real(item))
            except AttributeError:  # backends and packages that this build lacks
                continue
    checked = 0
    for dotted in ("torch.distributed.fsdp.FullyShardedDataParallel", "torch.nn.parallel.DistributedDataParallel", "torch.optim.AdamW",
                   "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler", "torch.distributed.optim.ZeroRedundancyOptimizer",
                   "torch.distributed.pipelining.Schedule1F1B", "torch.distributed.checkpoint.FileSystemReader"):  # fmt: skip
        kind = real(dotted)
        for member in dir(kind):
            if member.startswith("_") or not callable(getattr(kind, member)):
                continue
            definer = next(base for base in kind.__mro__ if member in vars(base))
            method = vars(definer)[member]
            # Not what another library has hung on a class since (transformers adds to torch.nn.Module).
            if definer in owners and inspect.isfunction(method) and method.__module__.startswith("torch"):
                assert api.exists(f"{dotted}.{member}", "2.13"), f"{dotted}.{member}"
                checked += 1
    assert checked > 150


# --- two releases ------------------------------------------------------------------------------------------------------------


def api_changes(first, second):
    return {
        (change["kind"], change["name"]): change["details"]
        for area in changes(first, second)["areas"]
        for change in area["changes"]
    }


def test_2_7_to_2_8():
    record = changes("2.7", "2.8.0")
    found = api_changes("2.7", "2.8")
    assert found["changed", FSDP2] == ["reshard_after_forward: default True → None"]
    assert ("added", "torch.distributed.fsdp.FSDPModule.set_reshard_after_forward") in found
    texts = {row["id"]: row["holds_in"] for row in record["behaviour"]}
    assert texts["fsdp2.reshard.default_before_2_8"] == "2.7"


def test_2_5_to_2_6():
    """FSDP2 came to its public home; what that brought besides stands beside it, and its methods are not told one by one."""
    found = api_changes("2.5", "2.6")
    assert found["moved", FSDP2] == ["was torch.distributed._composable.fsdp.fully_shard"]
    assert any("shard_placement_fn" in item for item in found["changed", FSDP2])
    assert not [key for key in found if key[1].startswith("torch.distributed.fsdp.FSDPModule.") and key[0] == "added"]
    assert ("removed", "torch.distributed._composable.fully_shard") in found  # the prototype on FSDP1


def test_2_11_to_2_15():
    record = changes("2.11", "2.15")
    found = api_changes("2.11", "2.15")
    assert found["changed", FSDP2] == ["+ dp_mesh_dims: DataParallelMeshDims | None = None"]
    assert "deprecated in 2.13-2.14 only" in found["undeprecated", "torch.distributed.all_gather_into_tensor"][0]
    behaviour = {row["id"]: row["holds_in"] for row in record["behaviour"]}
    assert behaviour["fsdp2.tied"] == "2.15"  # ValueError from 2.12 on
    assert behaviour["mp2.reduce_dtype.none"] == "2.11" and behaviour["mp2.reduce_dtype.none_2_15"] == "2.15"
    options = {row["name"]: row["details"] for row in record["torchrun"]}
    assert options["--shutdown-timeout"] == ["new"] and "--nnodes" not in options
    assert "TORCH_DIST_NAN_CHECK" in {row["name"] for row in record["environment"]}


def test_what_was_run_on_one_release_only_is_no_change_of_behaviour():
    """The claim about Adafactor was run on 2.13.0 and nowhere else, as its file says."""
    record = changes("2.12", "2.13")
    assert "optim.adafactor_fsdp2" not in {row["id"] for row in record["behaviour"]}
    assert "optim.adafactor_fsdp2" in {row["id"] for row in record["statements"]}


def test_multi_gpu_functions_between_2_1_and_2_2():
    assert ("removed", "torch.distributed.all_reduce_multigpu") in api_changes("2.1", "2.2")


@pytest.mark.parametrize(("first", "second"), [("2.6", "2.7"), ("2.0", "2.15")])
def test_backwards_is_the_mirror(first, second):
    forth, back = api_changes(first, second), api_changes(second, first)
    assert {key[1] for key in forth if key[0] == "removed"} <= {key[1] for key in back if key[0] in ("added", "moved")}
    there, here = (changes(*pair)["behaviour"] for pair in ((first, second), (second, first)))
    assert [(row["id"], row["holds_in"]) for row in there] == [(row["id"], row["holds_in"]) for row in here]


@pytest.mark.parametrize("pair", [("2.11", "2.11.0"), ("2.11", "2.99"), ("x", "2.15"), ("", "")])
def test_releases_that_cannot_be_compared(pair):
    with pytest.raises(UnusableInput, match=r"\.$"):
        changes(*pair)


def parameters(*texts):
    return tuple(api.parameter(text) for text in texts)


def test_how_two_signatures_differ():
    before = parameters("module", "mesh = None", "*", "flag: bool = True", "old = 1")
    after = parameters("module", "*", "mesh = None", "flag: bool | None = None", "new: int = 2", "_ranks = None")
    found = compare(before, after)
    assert set(found.calls) == {
        "flag: default True → None", "+ new: int = 2", "- old = 1", "keyword-only now: mesh",
    }  # fmt: skip
    assert set(found.notes) == {"flag: bool → bool | None", "+ _ranks = None"}
    assert compare(before, before) == compare(None, after) == ((), ())
    swapped = compare(parameters("a", "b"), parameters("b", "a"))
    assert swapped.calls == ("order now b, a",)


@pytest.mark.parametrize(
    ("variable", "topic"),
    [
        ("NCCL_DEBUG", "nccl-debugging"),
        ("NCCL_SOCKET_IFNAME", "network-interfaces"),
        ("GLOO_SOCKET_IFNAME", "network-interfaces"),
    ],
)
def test_a_variable_of_the_library_below_leads_to_its_page(variable: str, topic: str) -> None:
    from shardguide.workflows import catalogue

    with pytest.raises(UnusableInput, match=f"explain {topic}"):
        name(variable, "2.13", None)
    page = catalogue.run("explain", {"topic": topic, "torch": "2.13"}, {}, None)
    assert variable in str(page)
