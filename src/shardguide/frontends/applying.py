# ruff: noqa: PTH101, PTH103, PTH105, PTH108, PTH109, PTH112, PTH113, PTH116, PTH118, PTH119, PTH120, PTH123, PTH202
# (os.path as in the rest of the product: pathlib costs start-up time)
"""Writing what an answer proposed (G2): shown first, only after a yes, only inside the project folder, each file whole or not at all."""

from __future__ import annotations

import difflib
import os

from shardguide import guard
from shardguide.frontends.render.safe import lines, one_line
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NamedTuple
from shardguide.guidance.sha import sha256
from shardguide.readers.files import lines_of

FOLDER = "shardguide"  # below the project, for the files of a plan and for snippets
RECORD = "shardguide-plan.json"  # the whole plan, as data
# Snippet id -> file name, where its own name says too little.
FILES = {
    "fsdp2": "train_fsdp2.py",
    "fsdp1": "train_fsdp1.py",
    "ddp": "train_ddp.py",
    "torchrun": "launch.sh",
    "sbatch": "job.sbatch",
    "kubernetes": "job.yaml",
    "accelerate": "accelerate_fsdp.yaml",
    "torchtitan": "torchtitan.sh",
    "measure": "measure.py",
    "manifest": "write_manifest.py",
}
_ENDS = {"python": ".py", "bash": ".sh", "yaml": ".yaml", "json": ".json"}
_LIMIT = 32 << 20  # bytes of a file that is changed


class File(NamedTuple):
    """One file as it is and as it would be."""

    path: str  # real path
    name: str  # as it is shown
    before: bytes | None  # None: there is no such file yet
    after: bytes


class Change(NamedTuple):
    """Everything that one answer would write."""

    id: str
    root: str  # real path of the project folder
    files: tuple[File, ...]
    failed: tuple[str, ...]  # checks that speak against it


def proposed(record: dict[str, Any], root: str, below: str = FOLDER) -> Change:
    """What an answer would change below ``root``, new files in its folder ``below``; no files where all is as it says already.

    Raises UnusableInput where it proposes nothing, where a file lies outside of the folder or has changed since.
    """
    from shardguide.notebook.commands import failed

    root = os.path.realpath(root)
    wanted = _edited(record, root) if record["workflow"] in ("review", "migrate") else _made(record, root, below)
    if not wanted:
        raise UnusableInput(f"{record['id']} proposes no file: it has no diff and no code.")
    files = tuple(one for one in wanted if one.before != one.after)
    return Change(record["id"], root, files, tuple(check["id"] for check in failed(record)))


def _edited(record: dict[str, Any], root: str) -> list[File]:
    """The files of a diff, each held against the digest that it had when it was read."""
    from .patch import applied
    from .patch import files as of_diff

    digests = record.get("digests") or {}
    diff = record.get("diff") or ""
    if record["workflow"] == "review" and not diff:
        from shardguide.workflows.review.fixes import unified

        _unchanged(digests, root)
        here = os.getcwd()
        if os.path.realpath(here) != root:
            raise UnusableInput(f"apply {record['id']} from the folder that it was asked in: {root}.")
        diff = unified(record["findings"])
    out = []
    for name, hunks in of_diff(diff).items():
        path = _inside(root, name)
        before = _read(path, name)
        if before is None:
            raise UnusableInput(f"{one_line(name)} is not there any more.")
        if name in digests and sha256(before).hexdigest() != digests[name]:
            raise UnusableInput(
                f"{one_line(name)} has changed since the answer was given; ask again, and apply the new one."
            )
        try:
            text = before.decode("utf-8")
        except UnicodeDecodeError:
            raise UnusableInput(f"{one_line(name)} is not UTF-8 and is not changed.") from None
        out.append(File(path, name, before, applied(text, hunks, one_line(name)).encode("utf-8")))
    return out


def _unchanged(digests: dict[str, str], root: str) -> None:
    for name, digest in digests.items():
        now = _read(_inside(root, name), name)
        if now is None or sha256(now).hexdigest() != digest:
            raise UnusableInput(
                f"{one_line(name)} has changed since the answer was given; ask again, and apply the new one."
            )


def _made(record: dict[str, Any], root: str, below: str) -> list[File]:
    """The files of a plan, or the snippets of any other answer."""
    out = []
    for name, text in files_of(record).items():
        shown = os.path.join(below, name)
        path = _inside(root, shown)
        out.append(File(path, shown, _read(path, shown), text.encode("utf-8")))
    return out


def files_of(record: dict[str, Any]) -> dict[str, str]:
    """File name to text: every snippet, and with a plan the record itself, as approved: it is written after a yes only."""
    from shardguide.guidance.serialise import to_json, with_approval

    out = {}
    for snippet in record.get("snippets", ()):
        end = _ENDS.get(snippet["language"], ".txt")
        out[FILES.get(snippet["id"]) or f"{snippet['id'].replace('-', '_')}{end}"] = snippet["code"]
    if record["workflow"] == "plan":
        out = {name: text for name, text in out.items() if name in FILES.values()}
        plain = {name: value for name, value in record.items() if name != "earlier"}
        out[RECORD] = to_json(with_approval(plain, "approved"))
    return out


def _inside(root: str, name: str) -> str:
    """The real path of a file below the project. Raises UnusableInput for one that lies elsewhere, links followed."""
    path = os.path.realpath(os.path.join(root, name))
    if not path.startswith(root.rstrip(os.sep) + os.sep):
        raise UnusableInput(f"{one_line(name)} lies outside of the project folder {one_line(root)} and is not written.")
    return path


def _read(path: str, name: str) -> bytes | None:
    try:
        if os.path.isdir(path):
            raise UnusableInput(f"{one_line(name)} is a folder.")
        with open(path, "rb") as file:
            found = file.read(_LIMIT + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnusableInput(f"{one_line(name)} cannot be read: {(error.strerror or str(error)).lower()}.") from None
    if len(found) > _LIMIT:
        raise UnusableInput(f"{one_line(name)} is larger than {_LIMIT >> 20} MiB and is not changed.")
    return found


def shown(change: Change, brief: bool = False) -> str:
    """The diff of the whole change, safe to print; data, and where ``brief`` is wanted new files, by name, size and digest."""
    out: list[str] = []
    for one in change.files:
        if os.path.basename(one.name) == RECORD or (brief and one.before is None):
            is_new = "new file" if one.before is None else "changed"
            size = f"{len(one.after):,} bytes, sha256 {sha256(one.after).hexdigest()[:16]}"
            out.append(f"{is_new} {one_line(one.name)} ({size})\n")
            continue
        before = lines_of((one.before or b"").decode("utf-8", "replace"))
        after = lines_of(one.after.decode("utf-8", "replace"))
        name = one_line(one.name)
        found = difflib.unified_diff(before, after, name if one.before is not None else "/dev/null", name)
        out += [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in found]
    return lines("".join(out))


def question(change: Change) -> str:
    """What is put to the user below the diff."""
    wrong = f"A check failed ({', '.join(change.failed)}). " if change.failed else ""
    count = len(change.files)
    return f"{wrong}Write {count} {'file' if count == 1 else 'files'}?"


def message(change: Change, most: int = 12_000) -> str:
    """The question with the files and the diff, cut where it is too long to be read in a dialogue."""
    names = ", ".join(f"{one_line(one.name)}{' (new)' if one.before is None else ''}" for one in change.files)
    diff = shown(change)
    more = len(diff) - most
    cut = f"\n… {more} more characters: shardguide apply {change.id} shows all of it." if more > 0 else ""
    return f"{question(change)} In {one_line(change.root)}: {names}\n\n{diff[:most]}{cut}"


def write(change: Change) -> list[str]:
    """Write the change; returns the names written. What was there stays beside it as NAME.bak.

    Raises UnusableInput where a file is no longer as it was shown; nothing is written then.
    """
    for one in change.files:
        if _read(one.path, one.name) != one.before or os.path.realpath(one.path) != one.path:
            raise UnusableInput(f"{one_line(one.name)} has changed while it was shown; nothing was written.")
    written: list[str] = []
    for one in change.files:
        try:
            with guard.allow_write(one.path):
                os.makedirs(os.path.dirname(one.path), exist_ok=True)
                whole(one.path, one.after)
        except OSError as error:
            before = f"; written before it: {', '.join(map(one_line, written))}" if written else "; nothing was written"
            reason = (error.strerror or str(error)).lower()
            raise UnusableInput(
                f"{one_line(one.name)} cannot be written ({reason}) and is as it was{before}."
            ) from None
        written.append(one.name)
    return written


def whole(path: str, data: bytes, backup: bool = True) -> None:
    """Whole or not at all: beside the target first, then moved over it; what was there is kept with .bak, its mode too.

    At every moment a file of that name is there, the old one or the new one.
    """
    mode = None
    if os.path.lexists(path):
        mode = os.stat(path).st_mode & 0o7777
        if backup:
            keep(path)
    temporary = path + ".shardguide-tmp"
    try:
        _flushed(temporary, data)
    except OSError:
        os.unlink(temporary)
        raise
    if mode is not None:
        os.chmod(temporary, mode)
    os.replace(temporary, path)


def keep(path: str) -> None:
    """Keep a file beside itself as .bak; what is kept under that name already stays, and this one is .bak.1 and so on."""
    with open(path, "rb") as file:
        now = file.read()
    for number in range(1000):
        name = f"{path}.bak.{number}" if number else f"{path}.bak"
        if not os.path.lexists(name):
            with guard.allow_write(name):
                _flushed(name, now)
            return
        if os.path.isfile(name) and os.path.getsize(name) == len(now):
            with open(name, "rb") as file:
                if file.read() == now:
                    return
    raise UnusableInput(f"{one_line(path)} has a thousand backups beside it; move them away first.")


def _flushed(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
