"""Which rank loads which data (FSD803, FSD805 to 813)."""

from __future__ import annotations

import ast

from ..methods import iterable
from ..project import Definition, dotted_text
from ..records import Call, Thing
from ..walk import Walker
from .common import all_within, constant, drop_argument, is_false
from .literals import bound, literal, number
from .parts import in_tests

_RANK_WORDS = ("rank", "world", "shard", "replica", "node", "mesh", "dp_")
_WORKER_WORDS = ("worker",)
_EVAL = ("val", "test", "eval", "dev", "infer", "predict", "calib", "bench")
_CHANGING = ("time.time", "time.time_ns", "os.getpid", "random.randint", "random.random", "torch.seed", "os.urandom")
_FEW = 8  # samples of a rank's batch: statistics over so few are poor
# Words of a program that divides the data in another way, or gives ranks the same data on purpose.
_SPLITTERS = (
    "split_dataset_by_node",
    "distributed_sampler",
    "webdataset",
    "StreamingDataset",
    "litdata",
    "StatefulDistributedSampler",
    "parallelize_module",
    "PipelineStage",
)


def sampler(walker: Walker, call: Call) -> None:
    """DistributedSampler(dataset, …)."""
    walker.fact("divided", call.node)
    rank, replicas = call.things("rank", 2), call.things("num_replicas", 1)
    if any(thing.kind == "local_rank" and thing.sure and thing.name == "LOCAL_RANK" for thing in rank):
        walker.report("FSD809", call.node, False, what="its rank is the local one")
    elif any(thing.kind == "rank" and thing.sure for thing in replicas):
        walker.report("FSD809", call.node, True, what="the number of replicas is a rank")
    elif (at := number(walker, call.argument("rank", 2))) is not None:
        count = number(walker, call.argument("num_replicas", 1))
        if count is not None and not 0 <= at < count:
            walker.report("FSD809", call.node, True, what=f"rank {at:g} of {count:g} replicas raises ValueError")
        elif in_tests(walker.frame.file):
            pass  # one process plays one of several ranks
        elif (count is None or count > 1) and not any(condition.kind == "rank" for condition in walker.path):
            walker.report("FSD809", call.node, False, what=f"every process takes the part of rank {at:g}")
    seed = bound(walker, call.argument("seed", 4))
    if isinstance(seed, ast.BinOp) and (found := [one for one in _all_things(walker, seed) if one.kind == "rank"]):
        walker.report("FSD803", call.node, found[0].sure, *drop_argument(call, "seed"))
    if isinstance(seed, ast.Call):
        inner = seed.args[0] if dotted_text(seed.func) == "int" and seed.args else seed
        name = walker.full(inner.func) if isinstance(inner, ast.Call) else ""
        if name in _CHANGING:
            walker.report("FSD803", call.node, False, *drop_argument(call, "seed"))


def loader(walker: Walker, call: Call) -> None:
    """DataLoader(dataset, …)."""
    _method(walker, call)
    size = number(walker, call.argument("batch_size", 1))
    if (
        size is not None
        and size <= _FEW
        and not _is_evaluation(walker, call, call.node.args[0] if call.node.args else call.node)
    ):
        walker.fact("few", call.node)
    _iterable(walker, call)
    _slices(walker, call)
    has = [name for name, at in (("sampler", 3), ("batch_sampler", 4)) if _there(call.argument(name, at))]
    if has or call.spread():
        if "sampler" in has and all(thing.kind != "sampler" for thing in call.things("sampler", 3)):
            walker.fact("divided", call.node)
        walker.mark(call.things("sampler", 3), "loaded", call.node)
        return
    dataset = call.argument("dataset", 0)
    if dataset is None or walker.without_gradients() or _is_evaluation(walker, call, dataset):
        return
    if any(thing.kind in ("rank", "local_rank") for thing in _all_things(walker, dataset)):
        return
    walker.fact("whole loader", call.node)
    walker.note(f"bare loader {walker.source(dataset)}", call.node)


def unused(walker: Walker) -> None:
    """A sampler that is made for a dataset and given to no loader, beside a loader of that dataset."""
    for thing in walker.made:
        if thing.kind != "sampler" or not isinstance(thing.node, ast.Call) or not thing.node.args:
            continue
        if any(mark.what in ("loaded", "escaped") for mark in thing.marks):
            continue
        file = thing.home(walker.frame.file)
        for mark in walker.marks:
            if mark.what == f"bare loader {file.source(thing.node.args[0])}" and mark.file is file:
                walker.report_at("FSD805", file, mark.node, False)


def _there(node: ast.expr | None) -> bool:
    return node is not None and not (isinstance(node, ast.Constant) and node.value is None)


def _is_evaluation(walker: Walker, call: Call, dataset: ast.expr) -> bool:
    names = [walker.source(dataset).lower(), *(getattr(node, "name", "").lower() for node in walker.stack)]
    return any(word in name for name in names for word in _EVAL) or is_false(call.argument("shuffle", 2))


def _all_things(walker: Walker, node: ast.AST) -> list[Thing]:
    """What stands in an expression, and in those that its names come from."""
    return [
        thing
        for inner in all_within(walker, node)
        if isinstance(inner, (ast.Name, ast.Call, ast.Attribute))
        for thing in walker.peek(inner)
    ]


def _class(walker: Walker, call: Call) -> Definition | None:
    """The project's class that the loader's dataset is of."""
    made = bound(walker, call.argument("dataset", 0))
    if not isinstance(made, ast.Call) or not dotted_text(made.func):
        return None
    found = walker.project.resolve(walker.frame.file, dotted_text(made.func))
    return found if isinstance(found, Definition) and isinstance(found.node, ast.ClassDef) else None


def _iterable(walker: Walker, call: Call) -> None:
    """An IterableDataset: no sampler, and its own division over ranks and workers."""
    found = _class(walker, call)
    if found is None or not isinstance(found.node, ast.ClassDef):
        return
    workers = number(walker, call.argument("num_workers", 5)) or 0
    if not iterable(walker.project, found):
        _on_gpu(walker, call, found, workers)
        return
    walker.fact("iterable", call.node)
    if any(thing.kind == "sampler" for thing in call.things("sampler", 3)):
        walker.fact("divided", call.node)
        walker.report("FSD810", call.node, True, *drop_argument(call, "sampler"))
        return
    made = bound(walker, call.argument("dataset", 0))
    words = _words(found.node)
    by_rank = any(part in word for word in words for part in _RANK_WORDS)
    by_worker = any(part in word for word in words for part in _WORKER_WORDS)
    told = made is not None and any(
        isinstance(inner, ast.Name) and any(part in inner.id.lower() for part in _RANK_WORDS)
        for inner in ast.walk(made)
    )
    if len(found.node.bases) > 1 or any(isinstance(base, ast.Subscript) for base in found.node.bases):
        return
    if not by_rank and not told:
        walker.fact("not by rank", found.node)
    elif workers > 1 and not by_worker:
        walker.report("FSD806", call.node, False, what="worker", name=found.node.name)


def _words(node: ast.ClassDef) -> set[str]:
    out: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            out.add(inner.id.lower())
        elif isinstance(inner, ast.Attribute):
            out.add(inner.attr.lower())
        elif isinstance(inner, (ast.arg, ast.keyword)):
            out.add((inner.arg or "").lower())
    return out


def _on_gpu(walker: Walker, call: Call, found: Definition, workers: float) -> None:
    """Items that are put on the GPU in a worker process."""
    if workers < 1 or call.argument("multiprocessing_context") is not None:
        return
    assert isinstance(found.node, ast.ClassDef)
    for item in found.node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__getitem__":
            for inner in ast.walk(item):
                if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
                    to = constant(inner.args[0]) if inner.args else None
                    to = next((constant(one.value) for one in inner.keywords if one.arg == "device"), to)
                    plain = inner.func.attr == "cuda" and not inner.args
                    if plain or (isinstance(to, str) and to.startswith("cuda")):
                        walker.report_at("FSD813", found.file, inner, False, name=found.node.name)
                        return


def _method(walker: Walker, call: Call) -> None:
    """multiprocessing_context="fork"."""
    if literal(walker, call.argument("multiprocessing_context")) == "fork":
        walker.fact("fork", call.node)


def start_method(walker: Walker, call: Call) -> None:
    """set_start_method("fork")."""
    if constant(call.argument("method", 0)) == "fork":
        walker.fact("fork", call.node)


def _slices(walker: Walker, call: Call) -> None:
    """A part for each rank that is cut out by hand: the parts differ in length when the ranks don't divide the data."""
    made = bound(walker, call.argument("dataset", 0))
    if made is None:
        return
    for inner in ast.walk(made):
        if isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Slice):
            lower, upper = _is_rank(walker, inner.slice.lower), _is_rank(walker, inner.slice.upper)
            if (lower and inner.slice.step is not None) or (upper and not lower):
                walker.fact("cut by hand", call.node)
                return
        elif isinstance(inner, ast.Call):
            name = dotted_text(inner.func).rpartition(".")[2]
            if name == "range" and inner.args:
                first = len(inner.args) > 1 and _is_rank(walker, inner.args[0])
                stop = _is_rank(walker, inner.args[min(1, len(inner.args) - 1)])
                if (first and len(inner.args) == 3) or (stop and not first):
                    walker.fact("cut by hand", call.node)
                    return
            given = {keyword.arg: keyword.value for keyword in inner.keywords}
            if name == "shard" and _is_rank(walker, given.get("index", inner.args[1] if len(inner.args) > 1 else None)):
                walker.fact("cut by hand", call.node)
                return


def _is_rank(walker: Walker, node: ast.expr | None) -> bool:
    return node is not None and any(thing.kind == "rank" for thing in _all_things(walker, node))


def epoch(walker: Walker, call: Call) -> None:
    """set_epoch(constant) inside a loop."""
    node = call.node.args[0] if call.node.args else None
    if walker.loop_depth and isinstance(node, ast.Constant) and any(thing.kind == "sampler" for thing in call.owner):
        walker.report("FSD811", call.node, False)


def seeded(walker: Walker, call: Call) -> None:
    """torch.manual_seed: by the rank, every rank makes data of its own; any seed makes splits alike."""
    walker.fact("seeded", call.node)
    if call.node.args and any(thing.kind in ("rank", "local_rank") for thing in _all_things(walker, call.node.args[0])):
        walker.fact("seeded by rank", call.node)


def split(walker: Walker, call: Call) -> None:
    """random_split without a generator."""
    if call.argument("generator", 2) is None and not call.spread():
        walker.fact("split", call.node)


def project(walker: Walker) -> None:
    """What a whole program lacks."""
    facts = walker.facts
    parallel = [fact for fact in ("ddp", "sharded") if facts.get(fact)]
    begun = bool(parallel or facts.get("init"))
    homes = {file for fact in (*parallel, "init") for file, _ in facts.get(fact, ())}
    if facts.get("fork") and facts.get("nccl"):
        for file, node in facts["fork"]:
            walker.report_at("FSD808", file, node, False)
    if facts.get("trainer"):
        return
    if begun:
        for file, node in facts.get("not by rank", ()):
            walker.report_at("FSD806", file, node, False, what="rank", name=getattr(node, "name", ""))
    apart = any(facts.get(fact) for fact in ("divided", "seeded by rank", "cut by hand"))
    apart = apart or any(word in file.text for file in homes for word in _SPLITTERS)
    for file, node in facts.get("whole loader", ()) if parallel and not apart else ():
        if file in homes and not any(node is other for _, other in facts.get("iterable", ())):
            walker.report_at("FSD805", file, node, False)
    if parallel and not facts.get("join"):
        for file, node in facts.get("cut by hand", ()):
            walker.report_at("FSD807", file, node, False)
    if begun and not facts.get("seeded"):
        for file, node in facts.get("split", ()):
            walker.report_at("FSD812", file, node, False)


def parallel(walker: Walker, call: Call) -> None:
    """A model that is sharded."""
    walker.fact("sharded", call.node)


def joined(walker: Walker, call: Call) -> None:
    """Join([…])."""
    walker.fact("join", call.node)


CALLS = {
    "DistributedSampler": [sampler],
    "DataLoader": [loader],
    "set_start_method": [start_method],
    "manual_seed": [seeded],
    "random_split": [split],
    "fully_shard": [parallel],
    "FSDP1": [parallel],
    "Join": [joined],
}
METHODS = {"set_epoch": [epoch], "join": [joined]}
ENDS = [unused]
PROJECT = [project]
