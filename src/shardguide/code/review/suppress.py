"""Comments that switch findings off on their line, and those of them that switch nothing off."""

from __future__ import annotations

from shardguide.guidance.hints import TYPE_CHECKING

from .records import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .launch.words import Text
    from .project import File

    Lines = File | Text

_OWN = "# shardguide: ignore"
_API = "FSD9"  # rules that need a release
CODE = "FSD049"


def _listed(comment: str) -> tuple[list[str], bool] | None:
    """The codes that a line's comment switches off, and whether it is all of them; None without such a comment."""
    _, mark, rest = comment.partition(_OWN)
    if mark:
        rest = rest.strip()
        if not rest.startswith("["):
            return [], True
        return [part.strip().upper() for part in rest[1:].partition("]")[0].split(",") if part.strip()], False
    at = comment.lower().find("# noqa:")
    if at >= 0 and "FSD" in comment[at:].upper():
        words = comment[at + 7 :].replace(",", " ").split()
        codes = []
        for word in words:
            if not (word[:1].isalpha() and word[-1:].isdigit()):
                break
            codes.append(word.upper())
        return [code for code in codes if code.startswith("FSD")], False
    return None


def line_of(file: Lines, number: int) -> str:
    """A line as text; "" behind the end."""
    return file.lines[number - 1].decode("utf-8", "replace") if 0 < number <= len(file.lines) else ""


def suppressor(file: Lines, line: int, code: str, above: bool) -> int:
    """The line whose comment switches a finding off; 0 for none. ``above``: a comment line above counts as well."""
    found = _listed(line_of(file, line))
    if found is not None and (found[1] or code in found[0]):
        return line
    if above:
        before = line_of(file, line - 1).strip()
        found = _listed(before) if before.startswith("#") else None
        if found is not None and (found[1] or code in found[0]):
            return line - 1
    return 0


def unused(
    files: Iterable[Lines],
    used: set[tuple[str, int, str]],
    applies: frozenset[str],
    everything: frozenset[str],
    release: str,
) -> list[Finding]:
    """Comments that switch off nothing. ``used``: path, line and code of those that do."""
    out: list[Finding] = []
    lines = {(path, number) for path, number, _ in used}
    for file in files:
        text = file.text
        if _OWN not in text and (
            "noqa" not in text.lower() or not any(f"FSD{digit}" in text for digit in "0123456789")
        ):
            continue  # telling comments from strings is slow, and few files have any of these
        comments = _comments(file)
        for number, column in comments.items():
            found = _listed(line_of(file, number)[column:])
            if found is None:
                continue
            codes, all_ = found
            idle = [
                code
                for code in codes
                if code != CODE and (file.path, number, code) not in used
                and (code not in everything or (code in applies and (release or not code.startswith(_API))))
            ]  # fmt: skip
            if all_ and applies == everything and release and (file.path, number) not in lines:
                words = "switches off all rules, and none is broken here"
            elif idle:
                none = [code for code in idle if code not in everything]
                words = f"names {', '.join(none)}, which is no rule"
                words = words if none else f"switches off {', '.join(idle)}, which is not found here"
            else:
                continue
            out.append(Finding(CODE, file.path, number, column + 1, True, (("what", words),)))
    return out


def _comments(file: Lines) -> dict[int, int]:
    """Line -> column of the comments that may switch something off; none in strings, where the file is Python."""
    out: dict[int, int] = {}
    if not hasattr(file, "tree"):
        for number, line in enumerate(file.text.split("\n"), 1):
            at = line.find("#")
            if at >= 0 and ("shardguide:" in line or "noqa" in line):
                out[number] = at
        return out
    import io
    import tokenize

    try:
        for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
            if token.type == tokenize.COMMENT and ("shardguide:" in token.string or "noqa" in token.string.lower()):
                out[token.start[0]] = token.start[1]
    except (tokenize.TokenError, SyntaxError, ValueError):
        pass
    return out
