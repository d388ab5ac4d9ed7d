# ruff: noqa: PTH112
# (os.path as in the rest of the product)
"""Which files a client may have read: those under the folders that were given when the server was started."""

from __future__ import annotations

import os

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.readers.files import shown

# Arguments that name files of the user's.
PATHS = ("paths", "files", "from", "measured", "code", "current", "tp_plan")


class Folders:
    """Real paths of folders; links are resolved, so one that leads out is refused."""

    def __init__(self, roots: tuple[str, ...]) -> None:
        self.roots = tuple(os.path.realpath(root) for root in roots)
        for root in self.roots:
            if not os.path.isdir(root):
                raise UnusableInput(f"{shown(root)} is not a folder; --allow takes folders that may be read.")

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments with their paths made absolute. Raises UnusableInput for one outside of the folders."""
        out = dict(arguments)
        for name in PATHS:
            value = out.get(name)
            if isinstance(value, str) and value:
                out[name] = self.inside(value)
            elif isinstance(value, list):
                out[name] = [self.inside(str(one)) for one in value]
        model = out.get("model")
        if isinstance(model, str) and (os.sep in model or os.path.lexists(os.path.join(self.roots[0], model))):  # noqa: PTH118
            out["model"] = self.inside(model)
        return out

    def inside(self, path: str) -> str:
        """The path, taken from the first folder where it is relative. Raises UnusableInput where it leads elsewhere."""
        if "\x00" in path:
            raise UnusableInput("a path holds no null bytes.")
        if "://" in path:
            raise UnusableInput(f"{shown(path)[:200]}: only files of this machine are read here, no URLs.")
        if path == "-":
            raise UnusableInput("there is no standard input here; pass the text itself as text.")
        full = os.path.join(self.roots[0], os.path.expanduser(path))  # noqa: PTH111, PTH118
        real = os.path.realpath(full)
        if not any(real == root or real.startswith(root.rstrip(os.sep) + os.sep) for root in self.roots):
            raise UnusableInput(
                f"{shown(path)[:200]} lies outside of the folders that this server may read ({', '.join(map(shown, self.roots))}); "
                "shardguide mcp --allow FOLDER adds one."
            )
        return full
