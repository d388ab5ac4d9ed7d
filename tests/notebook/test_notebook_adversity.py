"""Processes that meet, die, run out of space or find something else where the notebook should be: nothing is lost, and
what cannot be done is one sentence."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.notebook import Notebook, Place, schema, store

PLAN: dict[str, Any] = {
    "id": "aaaa1111aaaa1111",
    "workflow": "plan",
    "torch": {"version": "2.13.0"},
    "status": "complete",
}


def asked(path: Path) -> Notebook:
    return Notebook(Place(str(path), True))


def default(path: Path) -> Notebook:
    return Notebook(Place(str(path), False))


def in_child(action: Callable[[], Any]) -> Any:
    """What the action returns in a forked process, which may change its limits and its user."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = json.dumps(action())
        except UnusableInput as error:
            answer = json.dumps(["UnusableInput", str(error)])
        except BaseException as error:
            answer = json.dumps(["unexpected", repr(error)])
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return json.loads(answer)


def is_sentence(text: str) -> bool:
    return (
        (text[0].isupper() or text[0] == "/")
        and text.endswith(".")
        and "\n" not in text
        and "Traceback" not in text
        and len(text) < 400
    )


def refusal(action: Callable[[], object]) -> str:
    """The sentence that the action raises."""
    with pytest.raises(UnusableInput) as caught:
        action()
    assert is_sentence(str(caught.value)), caught.value
    return str(caught.value)


def sound(path: Path) -> bool:
    """SQLite's own check of every page and index."""
    with sqlite3.connect(path) as database:
        result = database.execute("PRAGMA integrity_check").fetchall()
    database.close()
    return result == [("ok",)]


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that another user can enter (pytest's own cannot be)."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def become_unprivileged() -> None:
    """The superuser may write anywhere, so a test of rights is run as somebody else."""
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)


# Several processes

WRITER = """
import sys
from shardguide.notebook import Notebook, Place
path, who, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.stdin.readline()
for number in range(times):
    with Notebook(Place(path, True)) as notebook:
        notebook.remember("/p", {f"{who}-{number}": number, "last": who}, "user")
        notebook.save({"id": f"{int(who):04x}{number:04x}", "text": "x" * 3000}, "same", "/p")
print(len(notebook.answers("/p")))
"""


def test_processes_writing_at_once(tmp_path: Path) -> None:
    """Four processes start together on a file that does not exist yet; every answer and guidance of each is kept."""
    path, times = tmp_path / "new" / "notebook.db", 12
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [
        subprocess.Popen(
            [*command, str(who), str(times)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for who in range(4)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"go\n")
        writer.stdin.flush()
    for writer in writers:
        out, error = writer.communicate(timeout=120)
        assert (writer.returncode, error) == (0, b""), error
        assert int(out) >= times
    with asked(path) as notebook:
        known = notebook.answers("/p")
        assert len(known) == 4 * times + 1
        assert len(notebook.history(limit=1000)) == 4 * times
    assert sound(path)


def test_a_lock_that_is_not_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "WAIT", 0.2)
    path = tmp_path / "notebook.db"
    asked(path).remember("", {"a": 1}, "user")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert "another process" in refusal(lambda: asked(path).remember("", {"b": 1}, "user"))
    assert "another process" in refusal(lambda: asked(path).answers())
    monkeypatch.setattr(store, "WAIT", 1.0)
    polite = default(path)
    start = time.monotonic()
    for _ in range(20):
        polite.remember("", {"b": 1}, "user")
    assert time.monotonic() - start < 10  # it waits once, not for every answer, which were 20 seconds
    assert "locked" in polite.unavailable
    holder.execute("ROLLBACK")
    holder.close()
    assert set(asked(path).answers()) == {"a"}


KILLED = """
import sys
from shardguide.notebook import Notebook, Place
notebook = Notebook(Place(sys.argv[1], True))
number = int(sys.argv[2])
while True:
    notebook.remember("/p", {"number": number, f"n{number % 50}": number}, "user")
    notebook.save({"id": f"{number:08x}", "text": "x" * 20_000}, str(number), "/p")
    print(number, flush=True)
    number += 1
"""


def test_killed_while_writing(tmp_path: Path) -> None:
    """Killed twenty times without warning, at whatever it was doing: all that had been confirmed is there."""
    path, confirmed = tmp_path / "notebook.db", 0
    for round_ in range(20):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path), str(confirmed + 1)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(1 + round_ % 3):
            confirmed = int(process.stdout.readline())
        time.sleep(0.0007 * round_)
        process.send_signal(signal.SIGKILL)
        for line in process.stdout:
            confirmed = int(line)
        process.wait()
        process.stdout.close()
        with asked(path) as notebook:
            assert notebook.answers("/p")["number"].value in (confirmed, confirmed + 1)
            entries = notebook.history(limit=10_000)
            assert {entry.id for entry in entries} >= {f"{number:08x}" for number in range(1, confirmed + 1)}
            confirmed = int(entries[0].id, 16)
    assert confirmed >= 39
    assert sound(path)


def test_killed_in_the_middle_of_a_transaction(tmp_path: Path) -> None:
    """Pages of an unfinished transaction are in the file, the journal beside it: the next to read takes them back."""
    path = tmp_path / "notebook.db"
    with asked(path) as notebook:
        notebook.remember("/p", {"a": "before", "text": "y" * 50_000}, "user")
    size = path.stat().st_size

    def write() -> None:
        database = sqlite3.connect(path, isolation_level=None)
        database.execute("PRAGMA cache_size=1")
        database.execute("BEGIN IMMEDIATE")
        database.execute("UPDATE answers SET value = '\"after\"'")
        for number in range(200):
            database.execute("INSERT INTO guidance VALUES (?, '', '', '', '', ?, '')", (f"{number:08x}", "z" * 5000))
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        write()
    os.waitpid(child, 0)
    assert path.stat().st_size > size  # the transaction had reached the file
    assert (tmp_path / "notebook.db-journal").exists()
    with asked(path) as notebook:
        assert notebook.answers("/p")["a"].value == "before"
        assert notebook.history() == []
    assert path.stat().st_size == size
    assert sound(path)


# Space and rights


def test_full_disk(tmp_path: Path) -> None:
    """No file may grow any more: refused or remarked on, and everything from before is still there."""
    path = tmp_path / "notebook.db"
    with asked(path) as notebook:
        notebook.remember("/p", {"a": 1}, "user")
        notebook.save(PLAN, "d", "/p")
    size = path.stat().st_size

    def fill(place: Place) -> object:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        notebook = Notebook(place)
        notebook.remember("/p", {f"n{i}": "x" * 10_000 for i in range(20)}, "user")
        return [notebook.unavailable, sorted(notebook.answers("/p"))]

    kind, sentence = in_child(lambda: fill(Place(str(path), True)))
    assert kind == "UnusableInput"
    assert is_sentence(sentence)
    assert "cannot be written" in sentence
    reason, names = in_child(lambda: fill(Place(str(path), False)))
    assert "cannot be written" in reason
    assert names == ["a"]
    with asked(path) as notebook:
        assert set(notebook.answers("/p")) == {"a"}
        assert notebook.find("d", "/p") is not None
        notebook.remember("/p", {"b": 2}, "user")
    assert sound(path)


def test_no_space_for_a_new_notebook(tmp_path: Path) -> None:
    def begin() -> object:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        notebook = default(tmp_path / "notebook.db")
        notebook.remember("/p", {"a": 1}, "user")
        return [notebook.unavailable, notebook.answers("/p")]

    reason, known = in_child(begin)
    assert "cannot be written" in reason
    assert known == {}
    with asked(tmp_path / "notebook.db") as notebook:
        notebook.remember("/p", {"a": 1}, "user")
        assert set(notebook.answers("/p")) == {"a"}


def test_read_only_home_without_a_notebook(shared: Path) -> None:
    """A plan goes on: nothing known, nothing kept, and the reason to say so."""
    shared.chmod(0o555)

    def use() -> object:
        become_unprivileged()
        notebook = default(shared / "state" / "notebook.db")
        known = notebook.answers("/p")
        before = notebook.unavailable
        notebook.remember("/p", {"a": 1}, "user")
        notebook.save(PLAN, "d", "/p")
        return [known, before, notebook.unavailable, notebook.history(), notebook.find("d", "/p")]

    known, before, reason, entries, found = in_child(use)
    assert (known, before, entries, found) == ({}, "", [], None)
    assert "Permission denied" in reason
    assert is_sentence(reason[0].upper() + reason[1:] + ".")

    def insist() -> object:
        become_unprivileged()
        return asked(shared / "state" / "notebook.db").remember("/p", {"a": 1}, "user")

    kind, sentence = in_child(insist)
    assert kind == "UnusableInput"
    assert is_sentence(sentence)


def test_read_only_home_with_a_notebook(shared: Path) -> None:
    """What is known is used all the same."""
    path = shared / "notebook.db"
    with asked(path) as notebook:
        notebook.remember("/p", {"a": 1}, "user")
        notebook.save(PLAN, "d", "/p")
    path.chmod(0o444)
    shared.chmod(0o555)

    def use() -> object:
        become_unprivileged()
        notebook = default(path)
        known = notebook.answers("/p")["a"].value
        notebook.remember("/p", {"b": 1}, "user")
        return [known, notebook.unavailable, sorted(notebook.answers("/p")), notebook.load("aaaa").id]

    known, reason, names, identity = in_child(use)
    assert (known, names, identity) == (1, ["a"], PLAN["id"])
    assert "cannot be written" in reason

    def approve() -> object:
        become_unprivileged()
        return default(path).approve("aaaa")

    kind, sentence = in_child(approve)
    assert kind == "UnusableInput"
    assert sentence.startswith("Nothing was kept: ")
    assert asked(path).approval(PLAN["id"]).state == "draft"


def test_no_right_to_read(shared: Path) -> None:
    path = shared / "notebook.db"
    with asked(path) as notebook:
        notebook.remember("/p", {"a": 1}, "user")
    path.chmod(0o000)

    def use(place: Place) -> object:
        become_unprivileged()
        notebook = Notebook(place)
        return [notebook.answers("/p"), notebook.unavailable]

    known, reason = in_child(lambda: use(Place(str(path), False)))
    assert known == {}
    assert "cannot be read (Permission denied)" in reason
    kind, sentence = in_child(lambda: use(Place(str(path), True)))
    assert kind == "UnusableInput"
    assert is_sentence(sentence)


def test_no_home_at_all() -> None:
    notebook = Notebook(Place("", False))
    assert notebook.answers() == {}
    notebook.remember("", {"a": 1}, "user")
    assert "no home folder" in notebook.unavailable


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("x")
    notebook = default(tmp_path / "state" / "notebook.db")
    assert notebook.answers() == {}
    assert "Not a directory" in notebook.unavailable
    assert "Not a directory" in refusal(lambda: asked(tmp_path / "state" / "notebook.db").answers())


# Something else in its place


@pytest.mark.parametrize("make", [asked, default])
def test_other_things_of_that_name(make: Callable[[Path], Notebook], tmp_path: Path) -> None:
    """Refused whether the user named it or not, and left as it was; a pipe is not waited for."""
    folder, pipe, text, zeros, foreign = (tmp_path / name for name in ("folder", "pipe", "text", "zeros", "foreign.db"))
    folder.mkdir()
    os.mkfifo(pipe)
    text.write_text("The user's own notes.")
    zeros.write_bytes(bytes(8192))
    database = sqlite3.connect(foreign)
    database.execute("CREATE TABLE answers (project, name)")
    database.commit()
    database.close()
    before = {path: path.read_bytes() for path in (text, zeros, foreign)}
    assert "is a folder" in refusal(lambda: make(folder).answers())
    assert "not a plain file" in refusal(lambda: make(pipe).answers())
    assert "not a plain file" in refusal(lambda: make(Path("/dev/null")).remember("", {"a": 1}, "user"))
    for path in before:
        assert "not a Shardguide notebook" in refusal(lambda path=path: make(path).answers())
        assert "not a Shardguide notebook" in refusal(lambda path=path: make(path).remember("", {"a": 1}, "user"))
    assert {path: path.read_bytes() for path in before} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "foreign.db", "pipe", "text", "zeros"]


def test_an_empty_file_becomes_a_notebook(tmp_path: Path) -> None:
    """A process killed between making the file and its tables leaves one; so does mktemp."""
    path = tmp_path / "notebook.db"
    path.touch()
    assert asked(path).answers() == {}
    assert path.stat().st_size == 0
    asked(path).remember("", {"a": 1}, "user")
    assert set(asked(path).answers()) == {"a"}


def filled(path: Path) -> bytes:
    """A notebook of some pages."""
    with asked(path) as notebook:
        notebook.remember("/p", {f"name {i}": "x" * 500 for i in range(100)}, "user")
        for number in range(10):
            notebook.save({"id": f"{number:08x}", "text": "x" * 3000}, "d", "/p")
    return path.read_bytes()


def use_all(notebook: Notebook) -> None:
    """Every way to read and write, until one refuses."""
    notebook.answers("/p")
    notebook.history()
    notebook.find("d", "/p")
    notebook.export()
    notebook.remember("/p", {f"other {i}": "y" * 500 for i in range(100)}, "user")
    notebook.save(PLAN, "d", "/p")


@pytest.mark.parametrize("damage", ["truncated", "cut to the header", "garbage", "noise in page 1", "no tables"])
def test_damaged_file(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "notebook.db"
    whole = filled(path)
    if damage == "truncated":
        path.write_bytes(whole[: len(whole) // 2 // 4096 * 4096])
    elif damage == "cut to the header":
        path.write_bytes(whole[:100])
    elif damage == "garbage":
        path.write_bytes(whole[:4096] + random.Random(7).randbytes(len(whole) - 4096))
    elif damage == "noise in page 1":
        path.write_bytes(whole[:100] + bytes(range(256)) * 15 + whole[100 + 256 * 15 :])
    else:
        database = sqlite3.connect(path)
        database.execute("DROP TABLE answers")
        database.commit()
        database.close()
    for make in (asked, default):
        assert "damaged" in refusal(lambda make=make: use_all(make(path)))


def test_damage_anywhere_is_a_sentence_or_harmless(tmp_path: Path) -> None:
    """Noise written at 40 places in turn: reading and writing either work or refuse in words."""
    whole = filled(tmp_path / "whole.db")
    path = tmp_path / "notebook.db"
    for place in range(100, len(whole) - 64, len(whole) // 40):
        path.write_bytes(whole[:place] + b"\xff\x00\x7f\x80" * 16 + whole[place + 64 :])
        try:
            with asked(path) as notebook:
                use_all(notebook)
        except UnusableInput as error:
            assert is_sentence(str(error)), error


def test_value_that_is_no_json(tmp_path: Path) -> None:
    path = tmp_path / "notebook.db"
    filled(path)
    database = sqlite3.connect(path)
    database.execute("UPDATE answers SET value = '{' WHERE name = 'name 3'")
    database.commit()
    database.close()
    assert "damaged" in refusal(lambda: asked(path).answers("/p"))


# Schema

# The file as version 0.1.0 makes it, written out once and for all: this text must never change.
FIRST = """
CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT, at TEXT);
INSERT INTO migrations VALUES (1, 'answers, guidance, approvals, handled', '2026-01-01T00:00:00Z');
CREATE TABLE answers (project TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, unit TEXT NOT NULL,
  source TEXT NOT NULL, since TEXT NOT NULL, PRIMARY KEY (project, name)) WITHOUT ROWID;
CREATE TABLE guidance (id TEXT PRIMARY KEY, workflow TEXT NOT NULL, torch TEXT NOT NULL, knowledge TEXT NOT NULL,
  status TEXT NOT NULL, result TEXT NOT NULL, created TEXT NOT NULL);
CREATE TABLE approvals (number INTEGER PRIMARY KEY, guidance TEXT NOT NULL, state TEXT NOT NULL, note TEXT NOT NULL,
  at TEXT NOT NULL);
CREATE INDEX approvals_of ON approvals (guidance, number);
CREATE TABLE handled (number INTEGER PRIMARY KEY, at TEXT NOT NULL, project TEXT NOT NULL, inputs TEXT NOT NULL,
  guidance TEXT NOT NULL);
CREATE INDEX handled_inputs ON handled (inputs, number);
CREATE INDEX handled_guidance ON handled (guidance, number);
INSERT INTO answers VALUES ('/p', 'gpus', '16', '', 'user', '2026-01-01T00:00:00Z');
INSERT INTO guidance VALUES
  ('aaaa1111', 'plan', '2.13.0', 'k', 'complete', '{"id": "aaaa1111"}', '2026-01-01T00:00:00Z');
INSERT INTO approvals VALUES (1, 'aaaa1111', 'approved', 'ok', '2026-01-02T00:00:00Z');
INSERT INTO handled VALUES (1, '2026-01-01T00:00:00Z', '/p', 'd', 'aaaa1111');
PRAGMA application_id = 1399351140;
PRAGMA user_version = 1;
"""

NEXT = (
    "a note for each answer",
    ("ALTER TABLE answers ADD COLUMN note TEXT NOT NULL DEFAULT ''", "CREATE TABLE extra (a)"),
)


@pytest.fixture
def first(tmp_path: Path) -> Path:
    path = tmp_path / "notebook.db"
    database = sqlite3.connect(path)
    database.executescript(FIRST)
    database.close()
    return path


def holds_everything(path: Path) -> bool:
    with asked(path) as notebook:
        kept = notebook.load("aaaa")
        return (
            notebook.answers("/p")["gpus"][:4] == (16, "", "user", "2026-01-01T00:00:00Z")
            and kept.mark == ("approved", "ok", "2026-01-02T00:00:00Z")
            and kept.guidance == {"id": "aaaa1111"}
            and notebook.history("/p")[0].times == 1
        )


def test_a_file_of_the_first_version(first: Path) -> None:
    assert holds_everything(first)
    with asked(first) as notebook:
        notebook.remember("/p", {"gpus": 8}, "user")
        notebook.save(PLAN, "d", "/p")
        assert notebook.reject(PLAN["id"]).state == "rejected"
        assert notebook.answers("/p")["gpus"].value == 8


def test_older_file_is_brought_up_to_date(first: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, NEXT))
    assert holds_everything(first)
    database = sqlite3.connect(first)
    assert database.execute("PRAGMA user_version").fetchone() == (len(schema.MIGRATIONS),)
    assert [row[0] for row in database.execute("SELECT name FROM migrations ORDER BY number")][-1] == NEXT[0]
    assert database.execute("SELECT note FROM answers").fetchall() == [("",)]
    database.close()


def test_migration_that_fails_changes_nothing(first: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = first.read_bytes()
    monkeypatch.setattr(
        schema, "MIGRATIONS", (*schema.MIGRATIONS, (NEXT[0], (*NEXT[1], "INSERT INTO missing VALUES (1)")))
    )
    refusal(lambda: asked(first).answers("/p"))
    monkeypatch.undo()
    assert first.read_bytes() == before
    assert holds_everything(first)


def test_processes_migrating_at_once(first: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, NEXT))
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            try:
                asked(first).remember("/p", {f"n{number}": number}, "user")
                os._exit(0)
            except BaseException:
                os._exit(1)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    assert set(asked(first).answers("/p")) == {"gpus", "n0", "n1", "n2", "n3"}
    assert holds_everything(first)


def test_older_file_in_a_read_only_home(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shared / "notebook.db"
    database = sqlite3.connect(path)
    database.executescript(FIRST)
    database.close()
    path.chmod(0o444)
    shared.chmod(0o555)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, NEXT))

    def use() -> object:
        become_unprivileged()
        notebook = default(path)
        return [notebook.answers("/p"), notebook.unavailable]

    known, reason = in_child(use)
    assert known == {}
    assert "cannot be read" in reason


def test_newer_file_is_left_alone(first: Path) -> None:
    database = sqlite3.connect(first)
    database.execute("PRAGMA user_version = 77")
    database.close()
    before = first.read_bytes()
    for make in (asked, default):
        sentence = refusal(lambda make=make: make(first).answers("/p"))
        assert f"newer Shardguide (schema 77, this one knows {len(schema.MIGRATIONS)})" in sentence
        assert "update Shardguide" in sentence
        refusal(lambda make=make: make(first).remember("/p", {"a": 1}, "user"))
    assert first.read_bytes() == before


def test_program_text_is_dedented() -> None:
    """The programs above are compiled before a child runs them, so that a slip in one is not mistaken for a death."""
    for program in (WRITER, KILLED):
        compile(textwrap.dedent(program), "program", "exec")
