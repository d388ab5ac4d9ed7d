"""Build data/claims.json: look every claim's words up in every PyTorch release.

    python scripts/build_claims.py WHEELS [--check] [--index FILE]
    python scripts/build_claims.py --digest "a sentence as a reader sees it on the page"

WHEELS is the folder that scripts/fetch_wheels.py filled. Fails, naming the claim, when words are not found in 2.13 (unless
the claim's `from` or `to` excludes it), stand outside the definition that the claim names, or serve two claims.
`--check` compares with what is in the tree and writes nothing. `--index` writes a table of ids and texts.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import tomllib  # type: ignore[import-not-found]

KNOWLEDGE = Path(__file__).parent.parent / "src" / "shardguide" / "knowledge"
sys.path.insert(0, str(KNOWLEDGE.parent.parent))

from shardguide.installed.lookup import Place, Tree, find, missing  # noqa: E402
from shardguide.installed.pages import fingerprint  # noqa: E402
from shardguide.installed.resolve import moved  # noqa: E402
from shardguide.knowledge import releases  # noqa: E402
from shardguide.knowledge.lines import render  # noqa: E402

REFERENCE = "2.13"


class Wrong(Exception):
    """A claim that cannot be built."""


def digest(sentence: str) -> str:
    """What a source keeps of a sentence, as it is written in TOML."""
    found = fingerprint(sentence)
    return f'digest = "{found.digest}", words = {found.words}, key = "{found.key}", at = {found.at}'


def load(folder: Path) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """Places, pages and claims of all TOML files."""
    places: dict[str, Any] = {}
    pages: dict[str, Any] = {}
    claims: list[dict[str, Any]] = []
    for file in sorted(folder.glob("*.toml")):
        content = tomllib.loads(file.read_text(encoding="utf-8"))
        places |= content.get("places", {})
        pages |= content.get("pages", {})
        claims += content.get("claim", [])
    return places, pages, claims


class Release:
    """The unpacked files of one release."""

    def __init__(self, folder: Path) -> None:
        self.minor = releases.minor(folder.name)
        self.tree = Tree(str(folder))
        self.spans: dict[str, dict[str, list[tuple[int, int]]]] = {}

    def holds(self, places: tuple[Place, ...], anchors: tuple[str, ...]) -> bool:
        """Whether the words stand in one of the definitions, by the product's own look-up and by the syntax tree."""
        hit = find(self.tree, places, anchors)
        if hit is None and missing(self.tree, places):
            for place in moved(self.tree, places):
                hit = hit or find(self.tree, (place,), anchors)
        if hit is None:
            return False
        if hit.place.definition:
            spans = self.definitions(hit.place.file).get(hit.place.definition, [])
            if not any(first <= hit.reopened.line <= last for first, last in spans):
                raise Wrong(
                    f"{self.minor}: line {hit.reopened.line} of {hit.place.file} is outside {hit.place.definition}"
                )
        return True

    def definitions(self, file: str) -> dict[str, list[tuple[int, int]]]:
        """Qualified names of a file with their first and last lines, decorators and all variants included."""
        if file not in self.spans:
            self.spans[file] = {}
            self._walk(ast.parse(self.tree.text(file) or ""), "", self.spans[file])
        return self.spans[file]

    def _walk(self, node: ast.AST, prefix: str, spans: dict[str, list[tuple[int, int]]]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = prefix + child.name
                spans.setdefault(name, []).append((child.lineno, child.end_lineno or child.lineno))
                self._walk(child, name + ".", spans)
            else:
                self._walk(child, prefix, spans)


def build(folder: Path, wheels: Path) -> str:
    """The text of data/claims.json."""
    places, pages, claims = load(folder)
    trees = [Release(path) for path in sorted(wheels.iterdir()) if (path / "torch" / "version.py").is_file()]
    have = {tree.minor for tree in trees}
    if have != set(releases.known()):
        raise Wrong(f"WHEELS lacks releases: {sorted(set(releases.known()) - have)}")
    built: dict[str, Any] = {}
    words: dict[tuple[str, str], str] = {}
    problems: list[str] = []
    for claim in claims:
        name = claim["id"]
        try:
            if name in built:
                raise Wrong("there are two claims of this id")
            built[name] = one(claim, places, pages, trees, words)
        except (Wrong, KeyError) as problem:
            problems.append(f"{name}: {problem}")
    if problems:
        raise Wrong("\n".join(problems))
    used = {source.get("place") for claim in claims for source in claim["sources"]}
    tables = {
        "@places": {key: place for key, place in sorted(places.items()) if key in used},
        "@pages": dict(sorted(pages.items())),
    }
    return render({**tables, **dict(sorted(built.items()))})


def one(
    claim: dict[str, Any],
    places: dict[str, Any],
    pages: dict[str, Any],
    trees: list[Release],
    words: dict[tuple[str, str], str],
) -> dict[str, Any]:
    """One claim as it is shipped."""
    name, text = claim["id"], " ".join(claim["text"].split())
    if not re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)+", name):
        raise Wrong("an id is lower-case words joined by dots")
    if not text.endswith(".") or len(text) > 420:
        raise Wrong("the text must be one or two sentences that end with a full stop")
    if set(claim) - {"id", "text", "subjects", "sources", "from", "to", "why_limits", "witness"}:
        raise Wrong(f"unknown fields {sorted(claim)}")
    first, last = claim.get("from", releases.OLDEST), claim.get("to", releases.NEWEST)
    limited = "from" in claim or "to" in claim
    if limited and not claim.get("why_limits"):
        raise Wrong("from and to need why_limits")
    possible = [tree.minor for tree in trees if releases.within(tree.minor, f"{first}-{last}")]
    sources: list[dict[str, Any]] = []
    holds = set(possible)
    for source in claim["sources"]:
        if "page" in source:
            sources.append(page_source(source, pages))
            owner = words.setdefault((source["page"], source["digest"]), name)
            if owner != name:
                raise Wrong(f"{owner} rests on the same sentence of {source['page']}")
            continue
        where = tuple(Place(*item) for item in places[source["place"]]["at"])
        anchors = tuple(" ".join(anchor.split()) for anchor in source["anchors"])
        for anchor in anchors:
            if len(anchor) < 8 or not anchor.isascii():
                raise Wrong(f"too short to be found again, or not ASCII: {anchor!r}")
            owner = words.setdefault((":".join(where[0][1:]), anchor), name)  # two places may be one definition
            if owner != name:
                raise Wrong(f"{owner} rests on the same words: {anchor!r}")
        found = [tree.minor for tree in trees if tree.holds(where, anchors)]
        if not found:
            raise Wrong(f"found nowhere: {anchors}")
        if REFERENCE in possible and REFERENCE not in found:
            raise Wrong(f"not in {REFERENCE}, only in {releases.ranges(found)}: {anchors}")
        holds &= set(found)
        sources.append({"place": source["place"], "anchors": list(anchors), "releases": releases.ranges(found)})
    if not holds:
        raise Wrong("its sources never stand together")
    in_code = any("place" in source for source in sources)
    result = {"text": text, "subjects": claim.get("subjects", [])}
    result["releases"] = releases.ranges(sorted(holds)) if in_code else ""
    if limited:
        result["limits"] = f"{first}-{last}" if first != last else first
    if "witness" in claim:
        result["witness"] = claim["witness"]
    return {**result, "sources": sources}


def page_source(source: dict[str, Any], pages: dict[str, Any]) -> dict[str, Any]:
    """A source that is a page."""
    if source["page"] not in pages:
        raise Wrong(f"unknown page {source['page']}")
    known = {key: source.get(key) for key in ("digest", "words", "key", "at")}
    if None in known.values() or not re.fullmatch("[0-9a-f]{64}", source["digest"]) or source["words"] < 4:
        raise Wrong(
            "a page needs digest, words, key and at, as --digest prints them for a sentence of four words or more"
        )
    return {"page": source["page"], "section": source.get("section", ""), **known}


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--digest"]:
        print(digest(arguments[1]))
        return 0
    if not arguments or arguments[0].startswith("-"):
        print(__doc__)
        return 2
    target = KNOWLEDGE / "data" / "claims.json"
    try:
        text = build(KNOWLEDGE / "claims", Path(arguments[0]))
    except Wrong as problem:
        print(problem, file=sys.stderr)
        return 1
    if "--check" in arguments:
        same = target.is_file() and target.read_text(encoding="utf-8") == text
        print("data/claims.json is up to date" if same else "data/claims.json differs: run scripts/build_claims.py")
        return 0 if same else 1
    target.write_text(text, encoding="utf-8")
    _, _, claims = load(KNOWLEDGE / "claims")
    paged = sum(all("page" in source for source in claim["sources"]) for claim in claims)
    print(f"{len(claims)} claims, {paged} of them resting on pages alone")
    if "--index" in arguments:
        table = [
            f"{claim['id']:<44} {' '.join(claim['text'].split())}" for claim in sorted(claims, key=lambda c: c["id"])
        ]
        Path(arguments[arguments.index("--index") + 1]).write_text("\n".join(table) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
