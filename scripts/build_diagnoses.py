"""Build data/diagnoses.json from knowledge/diagnoses/*.toml.

    python scripts/build_diagnoses.py [WHEELS] [--check]

With WHEELS (the folder that scripts/fetch_wheels.py filled) the wordings that PyTorch's Python files hold are looked up in every
release, and data/diagnoses.json gets the releases in which each stands; without it those found before are kept. Fails,
naming the diagnosis, for unknown fields, claims, patterns and topics, and for words too common to be looked for.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import tomllib  # type: ignore[import-not-found]

KNOWLEDGE = Path(__file__).parent.parent / "src" / "shardguide" / "knowledge"
sys.path.insert(0, str(KNOWLEDGE.parent.parent))

from shardguide.knowledge import claims_store, diagnosis_store, pattern_store, releases, symptom_index  # noqa: E402
from shardguide.knowledge.lines import render  # noqa: E402

TEXTS = ("title", "cause", "tell", "fix", "check", "next")
FIELDS = {"id", "family", "kind", "confidence", "sign", "all", "unless", "symptoms", "patterns", "claims", "sources", "example",
          "near_miss", "code", *TEXTS}  # fmt: skip
KINDS = ("cause", "symptom", "cascade")
CONFIDENCE = ("certain", "likely", "possible")
SIGN = {"text", "where", "origin", "releases"}


class Wrong(Exception):
    """A diagnosis that cannot be built."""


def one(source: dict[str, Any], claims: set[str], patterns: set[str]) -> dict[str, Any]:
    """The entry of a diagnosis."""
    if set(source) - FIELDS:
        raise Wrong(f"unknown fields {sorted(set(source) - FIELDS)}")
    missing = [name for name in ("title", "family", "kind", "confidence", "cause", "fix") if not source.get(name)]
    if missing:
        raise Wrong(f"lacks {missing}")
    if not re.fullmatch(r"[a-z0-9_]+", source["id"]):
        raise Wrong("an id is lower-case words joined by underscores")
    if source["kind"] not in KINDS or source["confidence"] not in CONFIDENCE:
        raise Wrong(f"kind is one of {KINDS}, confidence one of {CONFIDENCE}")
    if not source.get("sources") and not source.get("claims"):
        raise Wrong("has no source")
    unknown = [name for name in source.get("claims", ()) if name not in claims]
    unknown += [name for name in source.get("patterns", ()) if name not in patterns]
    if unknown:
        raise Wrong(f"there is no claim or pattern {unknown}")
    if not source.get("sign") and not source.get("symptoms") and not source.get("code"):
        raise Wrong("has neither signs nor symptoms, and no analyser finds it")
    signs = []
    for sign in source.get("sign", ()):
        if set(sign) - SIGN or not {"text", "origin"} <= set(sign):
            raise Wrong(f"a sign has text, origin and, where needed, where: {sign}")
        if len(sign["text"]) < 8 or "\n" in sign["text"]:
            raise Wrong(f"too short to mean anything: {sign['text']!r}")
        if "where" in sign:
            re.compile(sign["where"])
        signs.append({"text": sign["text"], "where": sign.get("where", ""), "origin": sign["origin"], "releases": ""})
    if signs and not source.get("example"):
        raise Wrong("has signs but no example log")
    return {
        "family": source["family"],
        "kind": source["kind"],
        "confidence": source["confidence"],
        **{name: " ".join(source.get(name, "").split()) for name in TEXTS},
        "signs": signs,
        "all": source.get("all", []),
        "unless": source.get("unless", []),
        "symptoms": [one if isinstance(one, str) else one["text"] for one in source.get("symptoms", ())],
        "patterns": source.get("patterns", []),
        "claims": source.get("claims", []),
        "sources": source.get("sources", []),
        "code": source.get("code", ""),
    }


def in_releases(entries: dict[str, Any], wheels: Path) -> None:
    """Write into each sign that PyTorch's Python files hold the releases in which it stands."""
    wanted = [sign for entry in entries.values() for sign in entry["signs"] if sign["origin"].startswith("torch/")]
    stands: dict[str, list[str]] = {sign["text"]: [] for sign in wanted}
    for folder in sorted(wheels.iterdir()):
        if not (folder / "torch" / "version.py").is_file():
            continue
        # A message is often put together from several literals: quotes and line ends between them do not count.
        text = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.rglob("*.py")))
        joined = re.sub(r"""["']\s*\n?\s*(?:rf|fr|f|r)?["']""", "", text)
        for words in stands:
            if words in text or words in joined:
                stands[words].append(releases.minor(folder.name))
    for sign in wanted:
        sign["releases"] = releases.ranges(stands[sign["text"]]) if stands[sign["text"]] else ""


def build(wheels: Path | None) -> str:
    """The text of data/diagnoses.json."""
    claims, patterns = set(claims_store.ids()), set(pattern_store.ids())
    entries: dict[str, Any] = {}
    problems: list[str] = []
    for path in sorted((KNOWLEDGE / "diagnoses").glob("*.toml")):
        try:
            sources = tomllib.loads(path.read_text(encoding="utf-8")).get("diagnosis", [])
        except tomllib.TOMLDecodeError as error:
            problems.append(f"{path.name}: {error}")
            continue
        for source in sources:
            try:
                if source["id"] in entries:
                    raise Wrong("there are two of this id")
                entries[source["id"]] = one(source, claims, patterns)
            except (Wrong, KeyError, re.error) as problem:
                problems.append(f"{path.name}: {source.get('id')}: {problem}")
    if problems:
        raise Wrong("\n".join(problems))
    if wheels is not None:
        in_releases(entries, wheels)
    else:
        before = {
            (name, sign["text"]): sign["releases"]
            for name in diagnosis_store.ids()
            for sign in diagnosis_store.entry(name)["signs"]
        }
        for name, entry in entries.items():
            for sign in entry["signs"]:
                sign["releases"] = before.get((name, sign["text"]), "")
    # All words that are looked for, once, in the order of the automaton.
    words = sorted(
        {sign["text"] for entry in entries.values() for sign in entry["signs"]}
        | {text for entry in entries.values() for text in (*entry["all"], *entry["unless"])}
        | set(diagnosis_store.PROBES)
    )
    at = {text: index for index, text in enumerate(words)}
    for entry in entries.values():
        for sign in entry["signs"]:
            sign["at"] = at[sign["text"]]
        entry["all"] = [at[text] for text in entry["all"]]
        entry["unless"] = [at[text] for text in entry["unless"]]
    of: list[list[str]] = [[] for _ in words]  # the diagnoses for which a word is a sign
    for name, entry in sorted(entries.items()):
        for place in sorted({sign["at"] for sign in entry["signs"]}):
            of[place].append(name)
    return render({"@words": words, "@of": of, "@terms": symptom_index.build(entries), **dict(sorted(entries.items()))})


def main(arguments: list[str]) -> int:
    target = KNOWLEDGE / "data" / "diagnoses.json"
    if not target.is_file():
        target.write_text(render({"@words": []}), encoding="utf-8")
    folders = [Path(item) for item in arguments if not item.startswith("-")]
    try:
        text = build(folders[0] if folders else None)
    except Wrong as problem:
        print(problem, file=sys.stderr)
        return 1
    if "--check" in arguments:
        same = target.read_text(encoding="utf-8") == text
        print(
            "data/diagnoses.json is up to date"
            if same
            else "data/diagnoses.json differs: run scripts/build_diagnoses.py"
        )
        return 0 if same else 1
    target.write_text(text, encoding="utf-8")
    print(f"{text.count(chr(10)) - 6} diagnoses")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
