"""Find installed PyTorch and say which release and build it is, from text alone.

Nothing is imported and no interpreter is asked: folders are listed and ``torch/version.py`` is read as text.
"""

# No pathlib in this module: it is on the way of every command.
# ruff: noqa: PTH112, PTH113, PTH116, PTH118, PTH120

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import NamedTuple
from shardguide.installed.lookup import read_text

_MANY = 2000  # entries looked at in one folder, and .pth files read in it: a real one has some hundred


class Installed(NamedTuple):
    """One PyTorch found."""

    version: str  # as it calls itself: "2.13.0+cpu", "2.14.0a0+git1f2e3d4"
    path: str  # the folder that holds torch/: site-packages, or a source tree
    build: str  # "cpu", "cuda 12.6", "rocm 6.4", "xpu 20250200"; "unknown" for a source tree not built
    git: str  # commit, "" when not stated
    found_by: str  # "--site-packages", "$VIRTUAL_ENV", "$CONDA_PREFIX", "./.venv" or "own environment"


def installed(
    site_packages: str | None = None, environ: Mapping[str, str] | None = None, folder: str = "."
) -> list[Installed]:
    """Every PyTorch that the user may mean.

    A folder named in so many words is the only one looked at. Else the active virtual environment, the active conda
    environment and ``.venv`` in `folder` are looked at together: more than one release there is a question for the
    caller to ask. Only when none of them has PyTorch does the environment count in which this program runs. An empty
    list means that no PyTorch is at hand.

    Raises:
        UnusableInput: `site_packages` was given and holds no PyTorch.
    """
    if site_packages is not None:
        roots = [*_prefix(site_packages), site_packages]
        named = _unique(Installed(*item, "--site-packages") for root in roots for item in _torch(root))
        if not named:
            shown = site_packages[:200]
            raise UnusableInput(f"There is no PyTorch in {shown}; give the folder that contains torch/version.py.")
        return named
    environ = os.environ if environ is None else environ
    prefixes = [("$VIRTUAL_ENV", environ.get("VIRTUAL_ENV", "")), ("$CONDA_PREFIX", environ.get("CONDA_PREFIX", ""))]
    prefixes.append(("./.venv", os.path.join(folder, ".venv")))
    found = [
        Installed(*item, name)
        for name, prefix in prefixes
        if prefix
        for root in _prefix(prefix)
        for item in _torch(root)
    ]
    if not found:
        found = [Installed(*item, "own environment") for root in sys.path if root for item in _torch(root)]
    return _unique(found)


def _unique(found: Iterator[Installed] | list[Installed]) -> list[Installed]:
    """Each folder once, whatever path led to it."""
    seen: dict[str, Installed] = {}
    for item in found:
        seen.setdefault(os.path.realpath(item.path), item)
    return list(seen.values())


def _prefix(prefix: str) -> list[str]:
    """The site-packages folders of an environment: any Python's, on Linux, macOS or Windows."""
    result = []
    for lib in ("lib", "lib64", "Lib"):
        base = os.path.join(prefix, lib)
        names = [name for name in _names(base) if re.fullmatch(r"(?:python|pypy)\d[\d.]*t?", name)]
        result += [os.path.join(base, name, "site-packages") for name in sorted(names)]
        result.append(os.path.join(base, "site-packages"))
    return [path for path in result if os.path.isdir(path)]


def _torch(root: str) -> Iterator[tuple[str, str, str, str]]:
    """Version, folder, build and commit of the PyTorch in a folder, or of those that its editable installs lead to."""
    here = read(root)
    if here is not None:
        yield here
        return
    for path in _editable(root):
        there = read(path)
        if there is not None:
            yield there


def read(root: str) -> tuple[str, str, str, str] | None:
    """Version, folder, build and commit of the PyTorch whose ``torch`` folder lies in `root`, or None."""
    text = read_text(os.path.join(root, "torch", "version.py"))
    if text is not None:
        values = dict(re.findall(r"^(\w+)(?:\s*:[^=\n]{0,80})?\s*=\s*['\"]([^'\"\n]{0,100})['\"]", text[:20_000], re.M))
        version = values.get("__version__", "")
        if re.match(r"\d+\.\d+", version):
            return version, root, _build(version, values), values.get("git_version", "")
        return None
    text = read_text(os.path.join(root, "version.txt"))  # a source tree before its first build
    if text is not None and os.path.isfile(os.path.join(root, "torch", "__init__.py")):
        version = text[:100].strip()
        if re.fullmatch(r"\d+\.\d+[\w.+]*", version):
            return version, root, "unknown", ""
    return None


def _build(version: str, values: dict[str, str]) -> str:
    """What the build runs on. Stated in version.py; macOS wheels state nothing and are CPU (or MPS) builds."""
    for key, name in (("cuda", "cuda"), ("hip", "rocm"), ("rocm", "rocm"), ("xpu", "xpu")):
        if values.get(key):
            return f"{name} {values[key]}"
    local = version.partition("+")[2]
    match = re.match(r"cu(\d+)(\d)$|(rocm)([\d.]+)$|(xpu)$", local)
    if match:
        if match[1]:
            return f"cuda {match[1]}.{match[2]}"
        return f"rocm {match[4]}" if match[3] else "xpu"
    return "cpu"


def _editable(root: str) -> list[str]:
    """Folders that editable installs in a site-packages folder point to, and that may hold torch."""
    result: list[str] = []
    for name in _names(root):
        lower = name.lower()
        if lower.endswith(".pth"):
            for line in (_small(os.path.join(root, name)) or "").splitlines()[:100]:
                line = line.strip()
                if line and not line.startswith(("#", "import ", "import\t")):
                    result.append(os.path.join(root, line))
        elif lower == "torch.egg-link":
            result += [line.strip() for line in (_small(os.path.join(root, name)) or "").splitlines()[:1]]
        elif lower.startswith("__editable___torch_") and lower.endswith("_finder.py"):
            text = _small(os.path.join(root, name)) or ""
            for path in re.findall(r"['\"]torch['\"]\s*:\s*['\"]([^'\"\n]{1,4000})['\"]", text)[:1]:
                result.append(os.path.dirname(path.replace("\\\\", "\\")))
    return [path for path in list(dict.fromkeys(result))[:200] if path and os.path.isdir(path)]


def _names(folder: str) -> list[str]:
    """Names in a folder; none where it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry, _ in zip(entries, range(_MANY), strict=False))
    except (OSError, ValueError):
        return []


def _small(path: str) -> str | None:
    """The text of a file that ought to have a few lines."""
    try:
        found = os.stat(path)
        return read_text(path) if stat.S_ISREG(found.st_mode) and found.st_size < 100_000 else None
    except (OSError, ValueError):
        return None
