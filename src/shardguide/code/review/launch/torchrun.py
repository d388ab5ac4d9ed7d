"""Checks of torchrun's options: what it has, what it takes, and what contradicts itself."""

from __future__ import annotations

from shardguide.knowledge import api, releases

from .commands import Launch
from .report import Report
from .words import EARLY, Text, Word

_LOCAL = ("localhost", "127.0.0.1", "::1", "[::1]", "0.0.0.0")
_DEVICES = ("auto", "cpu", "gpu", "xpu")
_NO_DEVICES = ("all", "cuda", "gpus", "none", "max")
_OWN = ("--nproc-per-node", "--nnodes", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--node-rank", "--standalone")


def check(launch: Launch, text: Text, report: Report, shell: bool) -> None:
    """All checks of one torchrun. ``shell``: it is started as written, with no operator that sets PET_ variables."""
    if launch.kind == "launch":
        report.add("FSD004", text, launch.at, True)
    for word in launch.strange:
        _strange(word, text, report)
    for problem, at in _values(launch, report.release):
        report.add("FSD002", text, at, True, what=problem)
    _after_script(launch, text, report)
    nodes = node_count(launch)
    if nodes is not None and nodes > 1 and launch.get("--standalone") is not None:
        report.add("FSD005", text, launch.get("--nnodes") or launch.at, True, nodes=nodes)
    elif nodes is not None and nodes > 1:
        _meeting(launch, text, report, nodes, shell and "PET_" not in text.text)
    _ignored(launch, text, report)


def node_count(launch: Launch) -> int | None:
    """The least number of nodes that ``--nnodes`` asks for; None where the file does not tell it."""
    value = launch.get("--nnodes")
    if value is None:
        return None if launch.open else 1
    least = value.text.partition(":")[0]
    return int(least) if least.isdigit() and len(least) < 7 else None


def _strange(word: Word, text: Text, report: Report) -> None:
    name = word.text.partition("=")[0]
    has = [one for one in releases.known() if any(name in _spelled(option, one) for option in api.options())]
    only = f"; {releases.ranges(has)} have it" if has else ""
    whose = f"the torchrun of {report.release}" if report.release else "no torchrun"
    report.add(
        "FSD001", text, word, True, option=name, whose=whose, only=only, has="lacks" if report.release else "has"
    )


def _spelled(option: str, release: str) -> tuple[str, ...]:
    found = api.option(option, release)
    return found.spellings if found is not None else ()


def _values(launch: Launch, release: str) -> list[tuple[str, Word]]:
    """What torchrun would refuse at once, in words, and where."""
    out: list[tuple[str, Word]] = []
    for name, value, word in launch.options:
        if value is None or not value.known:
            continue
        said = value.text
        problem = ""
        if name == "--nnodes" and not _range(said):
            problem = f"--nnodes {said[:20]}: a number or least:most"
        elif name == "--nproc-per-node" and not said.isdigit():
            if (
                said in _NO_DEVICES
                or not said.isalnum()
                or (said == "xpu" and release and not releases.within(release, "2.10-2.99"))
            ):
                problem = f"--nproc-per-node {said[:20]}: a number, auto, cpu or gpu"
        elif name == "--max-restarts" and not said.isdigit():
            problem = f"--max-restarts {said[:20]}: a whole number of at least 0"
        elif name in ("--node-rank", "--master-port") and not said.isdigit():
            problem = f"{name} {said[:20]}: a whole number"
        elif name == "--start-method" and said not in ("spawn", "fork", "forkserver"):
            problem = f"--start-method {said[:20]}: spawn, fork or forkserver"
        elif name in ("--tee", "--redirects") and not _streams(said):
            problem = f"{name} {said[:20]}: 0 to 3, or such as 0:1,1:2 for each local rank"
        elif name == "--local-ranks-filter" and not all(part.strip().isdigit() for part in said.split(",")):
            problem = f"--local-ranks-filter {said[:20]}: local ranks with commas between them"
        if problem:
            out.append((problem, word))
    module, no_python = launch.get("--module"), launch.get("--no-python")
    if module is not None and no_python is not None:
        out.append(("--module and --no-python exclude each other", module))
    return out


def _range(said: str) -> bool:
    parts = said.split(":")
    if not 1 <= len(parts) <= 2 or not all(part.isdigit() for part in parts):
        return False
    return 0 < int(parts[0]) <= int(parts[-1])


def _streams(said: str) -> bool:
    if said in ("0", "1", "2", "3"):
        return True
    return all(len(one) == 3 and one[0].isdigit() and one[1] == ":" and one[2] in "0123" for one in said.split(","))


def _after_script(launch: Launch, text: Text, report: Report) -> None:
    """Options of torchrun behind the script, which go to the script."""
    if launch.script is None or launch.open:
        return
    for word in launch.arguments:
        name = word.text.partition("=")[0].replace("_", "-")
        if name in _OWN and launch.get(name) is None:
            bare = name[2:]
            takes = any(
                bare.replace("-", "_") in file.text or bare in file.text for file in _script(launch, text, report)
            )
            if not takes and launch.get("--module") is None:
                report.add(
                    "FSD003", text, word, False, option=word.text.partition("=")[0], script=launch.script.text[-60:]
                )


def _script(launch: Launch, text: Text, report: Report):  # type: ignore[no-untyped-def]
    from .beside import script_of

    found = script_of(launch, text, report.project)
    return [found] if found is not None else []


def _meeting(launch: Launch, text: Text, report: Report, nodes: int, shell: bool) -> None:
    """Several nodes: where they meet, and who is which."""
    backend = launch.get("--rdzv-backend")
    if backend is not None and backend.text not in ("static", "c10d"):
        return
    static = backend is None or backend.text == "static"
    endpoint, address = launch.get("--rdzv-endpoint"), launch.get("--master-addr")
    place = endpoint if endpoint is not None and endpoint.text else address if static else None
    if place is not None:
        host = place.text.rpartition(":")[0] if place is endpoint and ":" in place.text else place.text
        if host in _LOCAL[:4]:
            report.add("FSD006", text, place, True, nodes=nodes, where=f"{host}, which on each node is the node itself")
            return
    elif not launch.open and shell:
        report.add("FSD006", text, launch.at, True, nodes=nodes, where="no place: each waits on its own localhost")
        return
    if static and not launch.open and shell and launch.get("--node-rank") is None:
        report.add("FSD007", text, launch.at, launch.srun is not None, nodes=nodes)


def _ignored(launch: Launch, text: Text, report: Report) -> None:
    """Options without effect beside another one."""
    if launch.get("--standalone") is not None:
        for name, _, word in launch.options:
            if name in ("--rdzv-endpoint", "--rdzv-id", "--rdzv-backend", "--master-addr", "--master-port"):
                report.add("FSD008", text, word, False, option=name, beside="--standalone")
        return
    backend = launch.get("--rdzv-backend")
    if backend is None or backend.text not in ("c10d", "etcd", "etcd-v2"):
        return
    for name, value, word in launch.options:
        zero = value is not None and value.text == "0"
        if name in ("--node-rank", "--master-addr", "--master-port") and not (name == "--node-rank" and zero):
            report.add("FSD008", text, word, False, option=name, beside=f"--rdzv-backend {backend.text}")


def fixed_rank(launch: Launch, text: Text, report: Report, nodes: int) -> None:
    """The same ``--node-rank`` on all nodes that srun starts."""
    rank, backend = launch.get("--node-rank"), launch.get("--rdzv-backend")
    if launch.srun is None or rank is None or nodes < 2 or (backend is not None and backend.text != "static"):
        return
    if EARLY in rank.text:
        report.add("FSD009", text, rank, True, how="is filled in by the batch script, where it is 0,")
    elif rank.text.isdigit():
        report.add("FSD009", text, rank, True, how=f"is {rank.text}")
