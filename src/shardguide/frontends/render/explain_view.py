"""What ``explain`` found, for people: the answer, the statements with where they stand, the code."""

from __future__ import annotations

from shardguide.guidance.hints import Any

from .backend_view import verified
from .blocks import Block, Code, Heading, Items, Pairs, Table, Text, Title
from .plan_view import checks, end, questions, sources


def listing(record: dict[str, Any], command: str = "explain") -> list[Block]:
    """The topics by group, with the command that opens one."""
    out: list[Block] = [Title(f"shardguide {command} NAME opens one of these")]
    for group in record["groups"]:
        rows = tuple((one["id"], one["title"], "") for one in group["topics"])
        out.extend([Heading(group["title"]), Pairs(rows)])
    return out


def _where(statement: dict[str, Any], known: dict[str, Any]) -> str:
    """The first place of a statement, short: what it is, and file and line where it was opened again."""
    source = known[statement["sources"][0]]
    place = source["reopened"]
    at = f", {place['where'].rpartition('/')[2]}:{place['line']}" if place else ""
    mark = {"found": "", "index": f", {source['version']}", "page": "", "release unknown": f", {source['version']}"}
    return f"[{source['title']}{at}{mark.get(statement['status'], ', NOT CONFIRMED for this release')}]"


def statements(rows: list[dict[str, Any]], known: dict[str, Any]) -> Items:
    """Statements, each with where it stands."""
    return Items(tuple(f"{one['text']} {_where(one, known)}" for one in rows))


def _table(table: dict[str, Any]) -> list[Block]:
    short = {"not read": "~"}
    rows = tuple((row["operation"], *(short.get(mark, mark) for mark in row["marks"])) for row in table["rows"])
    unread = " (~: not read for these releases)" if any("~" in row for row in rows) else ""
    return [
        Heading(f"As in the documentation of {table['releases']}{unread}"),
        Table(("", *table["columns"]), rows),
        Text(f"{table['title']}, {table['url']}"),
    ]


def _snippet(one: dict[str, Any], patterns: dict[str, Any]) -> list[Block]:
    about = patterns[one["id"]]
    out: list[Block] = [Heading(f"{one['title']} ({one['id']})"), Code(one["language"], one["code"])]
    said = [f"Checked: {verified(one['verified'])}."]
    if about["run_with"]:
        said.append("Run with " + ", ".join(f"{new} for {old}" for old, new in about["run_with"].items()) + ".")
    if about["not_run"]:
        said.append(f"Not run: {about['not_run']}.")
    said.append(f"Follows {', '.join(about['follows'])}.")
    if about["departs"]:
        said.append(f"Departs from it: {about['departs']}")
    out.append(Text(" ".join(said)))
    return out


def _code(record: dict[str, Any], verbose: bool) -> list[Block]:
    patterns = {one["id"]: one for one in record["patterns"]}
    shown = record["snippets"] if verbose else record["snippets"][:1]
    out: list[Block] = []
    for one in shown:
        out.extend(_snippet(one, patterns))
    rest = record["snippets"][len(shown) :]
    if rest:
        rows = tuple((one["id"], f"{one['title']} ({verified(one['verified'])})", "") for one in rest)
        out.extend([Heading("More code (--show ID prints one, --verbose all)"), Pairs(rows)])
    return out


def view(record: dict[str, Any], verbose: bool) -> list[Block]:
    """The page for an explanation."""
    page = record["topic"]
    release = f"PyTorch {record['torch']['version'] or '(release not known)'}"
    if record["torch"]["known_from"] == "notebook":
        release += " (remembered; --torch changes it)"
    known = {source["id"]: source for source in record["sources"]}
    title = page["title"] if page else (record["snippets"][0]["title"] if record["snippets"] else "No code to show")
    out: list[Block] = [Title(f"{title} · {release}")]
    out.extend(questions(record))
    if page:
        out.append(statements(page["answer"], known))
        out.extend(_table(page["table"]) if "table" in page else [])
        for section in page["sections"]:
            out.extend([Heading(section["title"]), statements(section["statements"], known)])
    out.extend(_code(record, verbose))
    out.extend(checks(record, verbose))
    if page and page["see"]:
        out.extend([Heading("See also"), Items(tuple(f"{one['id']}: {one['title']}" for one in page["see"]))])
    if verbose:
        out.extend(sources(record))
    out.extend(end(record))
    return out
