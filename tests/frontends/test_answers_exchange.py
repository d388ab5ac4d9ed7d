"""``answers export`` and ``answers import``."""

from __future__ import annotations

from .conftest import Shardguide


def test_export_and_import(shardguide: Shardguide) -> None:
    ran = shardguide(
        "backend", "--device", "cuda", "--interconnect", "ethernet", "--os", "linux", "--torch", "2.13", "--json"
    )
    shardguide("approve", ran.json["id"])
    whole = shardguide("answers", "export")
    assert whole.status == 0 and whole.json["schema"] == "shardguide-notebook/1"
    (shardguide.folder / "note book.json").write_text(whole.out)
    other = ("--notebook", str(shardguide.folder / "other.db"))
    added = shardguide("answers", "import", "note book.json", *other, "--json")
    assert added.status == 0 and added.json["added"]["guidance"] == 1
    assert "approved" in shardguide("history", "--everywhere", *other).out
    again = shardguide("answers", "import", "note book.json", *other)
    assert again.out.strip() == "New here: nothing; all of it was known."


def test_what_is_no_export_is_refused(shardguide: Shardguide) -> None:
    (shardguide.folder / "bad.json").write_text('{"schema": "other"}')
    for arguments in (("import", "bad.json"), ("import", "nothing.json"), ("import",), ("export", "file.json")):
        ran = shardguide("answers", *arguments)
        assert ran.status == 2 and len(ran.err.splitlines()) == 1 and ran.out == ""
