"""Files that lie elsewhere: ``s3://``, ``gs://`` and the like, through fsspec (the extra ``remote``), only where a URL says so.

``load`` imports what a URL needs and says which packages that is; a front end calls it before its guard is on. Without a URL
nothing here is imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any

# What reads and lists files. Others of fsspec's run code, unpack archives or keep copies on disk.
SCHEMES = frozenset(
    "s3 s3a gs gcs az abfs abfss adl http https ftp sftp ssh hdfs webhdfs oci oss hf memory file".split()  # noqa: SIM905
)
BLOCK = 1 << 22
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def scheme(path: str) -> str:
    """The scheme of a URL, "" for a path.

    Raises UnusableInput for one that is not read.
    """
    found = _URL.match(path)
    if found is None:
        return ""
    name = found[1].lower()
    if name not in SCHEMES or "::" in path:
        raise UnusableInput(
            f"{path[:200]} is not read: the schemes are {', '.join(sorted(SCHEMES))}, none behind another."
        )
    return name


def load(schemes: Iterable[str]) -> frozenset[str]:
    """Import what these schemes need; returns the top-level names of all packages that belong to it.

    Raises UnusableInput where a package is missing.
    """
    names = {"fsspec"}
    for name in sorted(set(schemes)):
        try:
            import fsspec

            names.add(fsspec.get_filesystem_class(name).__module__.partition(".")[0])
        except ImportError as error:
            raise UnusableInput(
                f"{name}:// needs fsspec and its part for {name}: pip install '.[remote]' in Shardguide's folder ({str(error)[:120]})."
            ) from None
    return _closure(names)


def _closure(names: set[str]) -> frozenset[str]:
    """The packages with everything that they require."""
    from importlib import metadata

    by_module = metadata.packages_distributions()
    modules: dict[str, set[str]] = {}
    for module, distributions in by_module.items():
        for one in distributions:
            modules.setdefault(_plain(one), set()).add(module)
    todo = [_plain(one) for name in names for one in by_module.get(name, ())]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            required = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        # What only an extra of a package asks for is left out, except for what carries HTTP.
        todo += [_plain(found[0]) for one in required if "extra ==" not in one and (found := _NAME.match(one))]
    if "fsspec" in seen:
        todo = [name for name in ("aiohttp", "requests") if name in modules]
        seen |= set(todo)
    return frozenset(names).union(*(modules.get(name, set()) for name in seen))


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _system(url: str) -> tuple[Any, str]:
    try:
        import fsspec

        system, place = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise UnusableInput(
            f"{url[:200]} needs fsspec: pip install '.[remote]' in Shardguide's folder ({str(error)[:120]})."
        ) from None
    except Exception as error:
        raise _unusable(url, error) from None
    return system, place


def _unusable(url: str, error: Exception) -> UnusableInput:
    said = str(error) or type(error).__name__
    return UnusableInput(f"{url[:200]} cannot be opened ({type(error).__name__}: {said[:200]}).")


def opened(url: str) -> Any:
    """The file, open for reading bytes."""
    scheme(url)
    system, place = _system(url)
    try:
        return system.open(place, "rb", block_size=BLOCK)
    except Exception as error:
        raise _unusable(url, error) from None


def listed(url: str, most: int) -> list[str]:
    """The URLs of the files that a URL stands for: itself, a folder's, or those that match its wildcards."""
    name = scheme(url)
    system, place = _system(url)
    try:
        if any(sign in place for sign in "*?["):
            found = system.glob(place)
        elif (place.endswith("/") or url.endswith("/")) if name in ("http", "https") else system.isdir(place):
            found = system.find(place, maxdepth=12)
        elif name == "file" and not system.isfile(place):  # a pipe would never end
            raise FileNotFoundError("not a plain file")
        else:
            return [url]
        return [system.unstrip_protocol(one) for one in sorted(found)[: most + 1]]
    except Exception as error:
        raise _unusable(url, error) from None
