"""Build data/ask.db, the index of ``ask`` and ``docs search``, from the glossary and everything that can answer.

    python scripts/build_ask.py [--check]

Run it after the other builders: it indexes the topics, claims, patterns and diagnoses as shipped, and the glossary under
knowledge/ask. `--check` compares content, not bytes: each version of SQLite lays a file out in its own way, the same version always
in the same way. Fails, naming the entry, where the glossary is about something that does not exist or is not covered by it.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import tomllib  # type: ignore[import-not-found]

KNOWLEDGE = Path(__file__).parent.parent / "src" / "shardguide" / "knowledge"
sys.path.insert(0, str(KNOWLEDGE.parent.parent))

from shardguide.knowledge import ask_store, claims_store, diagnosis_store, pattern_store, topic_store  # noqa: E402

TARGET = {"id", "title", "words", "asks"}
FOREIGN = {"id", "title", "hard", "asks"}
INTENT = {"target", "needs", "bonus", "phrases"}
NEEDS = ("", "name", "size", "gpus", "releases")
# One row for each page, in columns that count differently, and rows for single phrasings, claims, patterns and diagnoses.
TABLES = {
    "pages": ("title", "words", "asks", "claims"),
    "asks": ("text",),
    "claims": ("text",),
    "patterns": ("text",),
    "diagnoses": ("text",),
}
PLAIN = ("rows", "words")


class Wrong(Exception):
    """A glossary that cannot be built."""


def glossary() -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
    """The targets, the subjects of others, and how questions are read."""
    targets: list[dict[str, Any]] = []
    foreign: list[dict[str, Any]] = []
    intents: list[dict[str, Any]] = []
    words: dict[str, Any] = {}
    wrong: list[str] = []
    for path in sorted((KNOWLEDGE / "ask").glob("*.toml")):
        try:
            source = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise Wrong(f"{path.name}: {error}") from None
        kinds = (("target", targets, TARGET), ("foreign", foreign, FOREIGN), ("intent", intents, INTENT))
        for key, of, fields in kinds:
            for one in source.pop(key, []):
                if set(one) != fields:
                    wrong.append(
                        f"{path.name}: {one.get('id')}: fields {sorted(set(one) ^ fields)} are unknown or missing"
                    )
                of.append(one)
        words |= source
    names = [one["id"] for one in (*targets, *foreign)]
    wrong += [f"{name} stands twice" for name in sorted(set(names)) if names.count(name) > 1]
    if set(words) != {"stop", "code", "say", "field"}:
        wrong.append("stop, code, say and field are needed, and nothing else")
    wrong += [
        f"intent {one['target']}: unknown" for one in intents if one["target"] not in names or one["needs"] not in NEEDS
    ]
    topics = topic_store.ids()
    wrong += [f"topic {topic} has no target" for topic in topics if topic not in names]
    if wrong:
        raise Wrong("\n".join(wrong))
    return targets, foreign, words | {"intents": intents}


def documents() -> tuple[list[tuple[str, str, str, tuple[str, ...]]], dict[str, Any]]:
    """Every row as (table, id, targets separated by spaces, columns), and the words for reading questions."""
    targets, foreign, words = glossary()
    titles = topic_store.titles()
    texts = {claim: claims_store.get(claim).text for claim in claims_store.ids()}
    rows: list[tuple[str, str, str, tuple[str, ...]]] = []
    names = {one["id"] for one in targets}
    for one in targets:
        name = one["id"]
        if name in titles:
            topic = topic_store.get(name)
            on_page = [*topic.answer, *(claim for section in topic.sections for claim in section.claims)]
            api = " ".join(entry.rpartition(".")[2] for entry in topic.api)
            title, claims = topic.title, " ".join(texts[claim] for claim in on_page if claim in texts)
        else:
            title, claims, api = one["title"], "", ""
        plainly = name.rpartition(":")[2].replace("-", " ")  # the name is how some will put it: gradient clipping
        rows.append(
            ("pages", title, name, (f"{title}, {plainly}", f"{one['words']} {api}", " ".join(one["asks"]), claims))
        )
        rows += [("asks", ask, name, (ask,)) for ask in (title, plainly, *one["asks"])]
    for one in foreign:
        name = f"outside:{one['id']}"
        rows.append(("pages", one["title"], name, (one["title"], " ".join(one["hard"]), " ".join(one["asks"]), "")))
        rows += [("asks", ask, name, (ask,)) for ask in (*one["asks"], *one["hard"])]
    for claim, text in texts.items():
        # "Since 2.8" says nothing about the subject.
        said = ask_store.unversioned(text)
        rows.append(("claims", claim, " ".join(topic_store.of_claim(claim)), (said,)))
    for name in pattern_store.ids():
        pattern = pattern_store.get(name)
        on = " ".join(topic for topic in pattern.topics if topic in names)
        rows.append(("patterns", name, on, (f"{pattern.title} {name}",)))
    for name in diagnosis_store.ids():
        found = diagnosis_store.get(name)
        said = " ".join((found.title, *found.symptoms, *(sign.text for sign in found.signs)))
        rows.append(("diagnoses", name, "workflow:diagnose", (said,)))
    reading = {
        "stop": sorted(set(words["stop"].split())),
        "code": sorted(set(words["code"].split())),
        "intents": [
            [
                one["target"],
                one["needs"],
                one["bonus"],
                [[ask_store.plain(part) for part in words.split("&")] for words in one["phrases"]],
            ]
            for one in words["intents"]
        ],
        "say": dict(sorted((ask_store.plain(key), value) for key, value in words["say"].items())),
        "strong": sorted({ask_store.plain(word) for word in words["field"]["strong"].split()}),
        "weak": sorted({ask_store.plain(word) for word in words["field"]["weak"].split()}),
        "hard": {ask_store.plain(word): one["id"] for one in foreign for word in one["hard"]},
    }
    return rows, reading


def build(target: Path) -> None:
    """Write the database, replacing what is there."""
    rows, reading = documents()
    handle, name = tempfile.mkstemp(dir=target.parent, suffix=".tmp")
    os.close(handle)
    database = sqlite3.connect(name)
    database.execute("pragma page_size = 4096")
    for table, columns in TABLES.items():
        # Without a copy of the texts: they are read where they belong once a row is found.
        database.execute(
            f"create virtual table {table} using fts5({', '.join(columns)}, content='', tokenize='porter unicode61')"
        )
    database.execute(
        'create table rows ("table" text, number integer, id text, targets text, primary key ("table", number)) without rowid'
    )
    database.execute("create table words (name text primary key, value text) without rowid")
    numbers = dict.fromkeys(TABLES, 0)
    for table, key, targets, columns in rows:
        numbers[table] += 1
        marks = ", ".join("?" * (len(columns) + 1))
        texts = [ask_store.indexed(text) for text in columns]
        names = ", ".join(TABLES[table])
        database.execute(f"insert into {table} (rowid, {names}) values ({marks})", (numbers[table], *texts))
        kept = key if table != "asks" else ""  # phrasings are never shown
        database.execute("insert into rows values (?, ?, ?, ?)", (table, numbers[table], kept, targets))
    for key, value in reading.items():
        database.execute("insert into words values (?, ?)", (key, json.dumps(value, ensure_ascii=False)))
    for table in TABLES:
        database.execute(f"insert into {table}({table}) values ('optimize')")
    told = json.dumps([rows, reading], ensure_ascii=False)
    database.execute(
        f"pragma user_version = {int(sha256(told.encode()).hexdigest()[:7], 16)}"
    )  # what identifies the index
    database.commit()
    database.execute("vacuum")
    database.close()
    Path(name).chmod(0o644)
    Path(name).replace(target)


def content(path: Path) -> dict[str, list[Any]]:
    """Everything that the database says: its plain tables, and of each index every word with where it stands."""
    database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    found: dict[str, list[Any]] = {"version": database.execute("pragma user_version").fetchall()}
    found |= {name: database.execute(f"select * from {name} order by 1, 2").fetchall() for name in PLAIN}
    for table in TABLES:
        database.execute(f"create virtual table temp.v_{table} using fts5vocab(main, {table}, instance)")
        found[table] = database.execute(
            f"select term, doc, col, offset from temp.v_{table} order by 1, 2, 3, 4"
        ).fetchall()
    database.close()
    return found


def main(arguments: list[str]) -> int:
    target = KNOWLEDGE / "data" / "ask.db"
    try:
        if "--check" not in arguments:
            build(target)
            return 0
        with tempfile.TemporaryDirectory() as folder:
            fresh = Path(folder) / "ask.db"
            build(fresh)
            same = target.is_file() and content(fresh) == content(target)
    except Wrong as problem:
        print(problem, file=sys.stderr)
        return 1
    print("data/ask.db is up to date" if same else "data/ask.db differs: run scripts/build_ask.py")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
