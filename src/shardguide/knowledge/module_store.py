"""The modules of torch.distributed in every release, private ones too: ``data/modules.json``, by ``scripts/build_modules.py``."""

from __future__ import annotations

from shardguide.knowledge import releases
from shardguide.knowledge.lines import Lines

_lines = Lines("modules.json")


def missing(name: str, release: str) -> str | None:
    """The releases that have a module, "" for none, where this one surely has not; None where it has it or that is not known.

    It is known where the package around it is one of this release whose files are all that it holds.
    """
    where = _lines.get(name)
    if where == "" or (where is not None and releases.within(release, where)):
        return None
    package = _lines.get(name.rpartition(".")[0])
    if package is None or not releases.within(release, package):
        return None
    return where or ""
