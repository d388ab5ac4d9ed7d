"""Sentences of pages are found again in downloaded documentation, and a changed word is noticed.

``pages/`` holds extracts of the pages that claims rest on: as Markdown and reST with the markup of their sources, and as the HTML
that Sphinx made of them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.record import Release
from shardguide.installed import pages, verify
from shardguide.installed.pages import Sentence
from shardguide.knowledge import claims_store
from shardguide.knowledge.claims_store import Page, Words

PAGES = Path(__file__).parent / "pages"
KINDS = ("markdown", "rest", "html")


def wanted() -> dict[str, Sentence]:
    return {
        f"{name}#{number}": Sentence(source.digest, source.words, source.key, source.at)
        for name in claims_store.ids()
        for number, source in enumerate(claims_store.get(name).sources)
        if isinstance(source, Page)
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_sentence_is_found_in_each_format(kind):
    """A claim that rests on a page needs its sentence in these extracts, in all three formats."""
    sentences = wanted()
    found = pages.find(str(PAGES / kind), sentences)
    assert sorted(sentences) == sorted(found)
    assert len(found) > 80
    for name, place in found.items():  # the line is the one where the sentence begins
        lines = (PAGES / kind / place.where).read_text(encoding="utf-8").splitlines()[place.line - 1 :]
        shown = re.sub(r"<[^>]*>", "", " ".join(lines[: 2 + sentences[name].words]))
        assert sentences[name].key in re.sub(r"\\\\|&gt;", "", shown), (name, place)
        assert re.search(r"\w", lines[0])


@pytest.mark.parametrize(("kind", "ending"), [("markdown", ".md"), ("rest", ".rst")])
def test_sources_as_sphinx_serves_them(kind, ending, tmp_path):
    """Sphinx keeps a page's source as distributed.md.txt."""
    source = (PAGES / kind / f"distributed{ending}").read_text(encoding="utf-8")
    (tmp_path / f"distributed{ending}.txt").write_text(source, encoding="utf-8")
    there = pages.find(str(PAGES / kind), wanted())
    there = {name: place for name, place in there.items() if place.where == f"distributed{ending}"}
    assert len(there) > 35
    assert {name: place.line for name, place in pages.find(str(tmp_path), wanted()).items()} == {
        name: place.line for name, place in there.items()
    }


def test_a_fingerprint_is_the_digest_of_the_words():
    found = pages.fingerprint("By default, `torch.distributed` is *not* started -- see __init__ (2 words).")
    words = "By default torch distributed is not started see init 2 words"
    assert found == Sentence(hashlib.sha256(words.encode()).hexdigest(), 11, "distributed", 3)


SENTENCE = "Every process calls init_process_group() before the first collective of the group."
FORMS = {
    "a.html": """<p>Before.</p><p>Every process calls <a class="reference"
 href="x.html#y" title="t"><code><span class="pre">init_process_group()</span></code></a> before the
first <em>collect</em>ive of&nbsp;the group.</p>""",
    "b.html": "<table><tr><td>Every process</td><td>calls init_process_group&#40;&#41;</td></tr>"
    "<!-- no words --><script>var a = '<p>none</p>';</script><tr><td>before the first collective of the group</td></tr></table>",
    "c.md": "# Title\n\n2. Every process calls {func}`~torch.distributed.init_process_group` before\n"
    '   the _first_ **collective** of [the group](groups.html "Groups").\n',
    "d.rst": "Title\n=====\n\n#. Every process calls :func:`init_process_group() <torch.distributed.init_process_group>` before\n"
    "   the *first* ``collective`` of `the group <groups.html>`__.\n",
    "e.rst": "Every process calls :py:func:`!init_process_group` before the first\ncollective\\ of the :ref:`group <groups>`.",
    "f.txt": "Every process calls init_process_group() before the first collective of the group.",
    "g.md": "Every process<br>calls `init_process_group()` before ![figure](none.png) the first collective of [the group][1].",
    "h.py": "# Every process calls ``init_process_group()`` before\n    # the first collective of the group.\n",
}
LINES = {"a.html": 1, "c.md": 3, "d.rst": 4}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_markup_does_not_count(name, tmp_path):
    sentence = pages.fingerprint(SENTENCE)
    text = FORMS[name].replace("collective\\ of", "collective\\  of")
    (tmp_path / name).write_text(text, encoding="utf-8")
    found = pages.find(str(tmp_path), {"it": sentence})
    assert found["it"] == (name, LINES.get(name, 1))
    for word in ("Every", "first", "group"):  # the last word comes several times: all of them change
        (tmp_path / name).write_text(text.replace(word, "other"), encoding="utf-8")
        assert pages.find(str(tmp_path), {"it": sentence}) == {}


def test_what_a_reader_does_not_see_is_not_found(tmp_path):
    for start, end in (("<!--", "-->"), ("<script>", "</script>"), ("<STYLE>", "</STYLE>"), ("<img alt='", "'>")):
        (tmp_path / "page.html").write_text(f"<p>a</p>{start}{SENTENCE}{end}<p>b</p>", encoding="utf-8")
        assert pages.find(str(tmp_path), {"it": pages.fingerprint(SENTENCE)}) == {}


def test_nothing_outside_the_folder_is_read(tmp_path):
    outside, inside = tmp_path / "outside", tmp_path / "docs"
    for folder in (outside, inside / ".git", inside / "deep"):
        folder.mkdir(parents=True)
        (folder / "page.md").write_text(SENTENCE, encoding="utf-8")
    (inside / "deep" / "page.md").rename(inside / "deep" / "page.json")  # no page
    (inside / "link").symlink_to(outside)
    (inside / "link.md").symlink_to(outside / "page.md")
    (inside / "loop").symlink_to(inside)
    os.mkfifo(inside / "pipe.md")
    sentences = {"it": pages.fingerprint(SENTENCE)}
    assert pages.find(str(inside), sentences) == {}
    (inside / "deep" / "page.rst").write_text("\n\n" + SENTENCE, encoding="utf-8")
    assert pages.find(str(inside), sentences) == {"it": ("deep/page.rst", 3)}


def test_bounds(tmp_path, monkeypatch):
    sentences = {"it": pages.fingerprint(SENTENCE)}
    (tmp_path / "a.md").write_text(" " * 1000 + SENTENCE, encoding="utf-8")
    (tmp_path / "b.md").write_text(SENTENCE, encoding="utf-8")
    monkeypatch.setattr(pages, "LARGEST", 900)
    assert pages.find(str(tmp_path), sentences)["it"].where == "b.md"  # the other is too large to be read
    monkeypatch.setattr(pages, "MOST_FILES", 1)
    with pytest.raises(UnusableInput, match="more than 1 pages"):
        pages.find(str(tmp_path), sentences)
    with pytest.raises(UnusableInput, match="no folder"):
        pages.find(str(tmp_path / "b.md"), sentences)


def test_reading_ends_when_all_is_found(tmp_path, monkeypatch):
    read = []
    real = pages._bytes
    monkeypatch.setattr(pages, "_bytes", lambda path: read.append(Path(path).name) or real(path))
    for name in ("a.md", "own.md", "z.md"):
        (tmp_path / name).write_text(SENTENCE, encoding="utf-8")
    found = pages.find(str(tmp_path), {"it": pages.fingerprint(SENTENCE)}, ["own"])
    assert found["it"].where == "own.md" and read == ["own.md"]


def test_hostile_text_is_read_in_time(tmp_path):
    """Half a megabyte of what makes careless patterns go back and forth."""
    for number, part in enumerate(("<a '", "<!--", "<script", "[a](", "`a<", ":a", "{a", "&a", "[[", "\\[", "<", "_")):
        for ending in ("html", "md", "rst"):
            (tmp_path / f"{number}.{ending}").write_text(
                part * (500_000 // len(part)) + " collective", encoding="utf-8"
            )
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout)["found"] == 0
    assert json.loads(done.stdout)["seconds"] < 30


CODE = """
import json, sys, time
from shardguide.installed import pages
found = pages.find(sys.argv[1], {"it": pages.Sentence("0" * 64, 3, "collective", 1)})
print(json.dumps({"found": len(found), "seconds": time.process_time()}))
"""


def test_sources_say_where_they_were_opened_again():
    release = Release("2.13.0", "test", "")
    name = "practice.fsdp_when"
    bare, shown = (verify.claims([name], release, docs)[name] for docs in ("", str(PAGES / "html")))
    assert bare.status == shown.status == "page"  # words in PyTorch alone make it found
    assert bare.sources[0].reopened is None
    assert shown.sources[0].reopened.where == "dist_overview.html"


# --- docs verify -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site_packages(tmp_path_factory):
    """The files of PyTorch 2.13.0 that claims point to, copied."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        pytest.skip("PyTorch is not installed here; make test installs it")
    origin = Path(spec.origin).parent.parent
    if "'2.13.0" not in (origin / "torch" / "version.py").read_text():
        pytest.skip("another PyTorch than 2.13.0 is installed here")
    folder = tmp_path_factory.mktemp("site-packages")
    files = {"torch/version.py", "torch/__init__.py"}
    for name in claims_store.ids():
        for source in claims_store.get(name).sources:
            files |= {place[1] for place in source.places} if isinstance(source, Words) else set()
    for file in files:
        if (origin / file).is_file():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(origin / file, folder / file)
    return folder


def docs_verify(folder, *arguments):
    command = [sys.executable, "-m", "shardguide", "docs", "verify", "--site-packages", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.torch
def test_docs_verify_notices_a_changed_word_in_pytorch(site_packages, tmp_path):
    whole = docs_verify(site_packages, "--json")
    before = json.loads(whole.stdout)
    assert whole.returncode == 0 and before["not_found"] == []
    assert before["found"] + before["page_only"] == before["claims"] and before["pages_opened"] == 0
    copy = tmp_path / "copy"
    shutil.copytree(site_packages, copy)
    file = copy / "torch/distributed/fsdp/_fully_shard/_fully_shard.py"
    text = file.read_text(encoding="utf-8")
    assert text.count("for non-root modules") == 1
    file.write_text(text.replace("for non-root modules", "for all modules"), encoding="utf-8")
    broken = docs_verify(copy, "--json")
    after = json.loads(broken.stdout)
    assert broken.returncode == 1
    assert [item["id"] for item in after["not_found"]] == ["fsdp2.reshard.default"]
    assert after["found"] == before["found"] - 1 and after["claims"] == before["claims"]
    shown = docs_verify(copy)
    assert shown.returncode == 1 and "fsdp2.reshard.default: " in " ".join(shown.stdout.split())


@pytest.mark.torch
def test_docs_verify_opens_pages_and_notices_a_changed_word(site_packages, tmp_path):
    paged = json.loads(docs_verify(site_packages, "--json").stdout)["page_only"]
    for kind in KINDS:
        done = docs_verify(site_packages, "--docs", str(PAGES / kind), "--json")
        record = json.loads(done.stdout)
        assert (done.returncode, record["pages_opened"], record["page_only"]) == (0, paged, 0)
    copy = tmp_path / "docs"
    shutil.copytree(PAGES / "markdown", copy)
    page = copy / "distributed.md"
    text = page.read_text(encoding="utf-8")
    assert text.count("multicast address is not supported") == 1
    page.write_text(text.replace("multicast address is not", "multicast address is"), encoding="utf-8")
    (copy / "rpc.md").unlink()  # a page that is not there leaves its claims as they are
    done = docs_verify(site_packages, "--docs", str(copy), "--json")
    record = json.loads(done.stdout)
    assert done.returncode == 1
    (missing,) = record["not_found"]
    assert (missing["id"], missing["page"]) == ("init.tcp.multicast", "distributed.md")
    assert record["page_only"] == sum("rpc.html" in source.url for source in page_sources())
    assert record["pages_opened"] + record["page_only"] + 1 == paged
    shown = docs_verify(site_packages, "--docs", str(copy))
    words = " ".join(shown.stdout.split())
    assert shown.returncode == 1 and "init.tcp.multicast: " in words and "(not in distributed.md)" in words


def page_sources():
    for name in claims_store.ids():
        yield from (source for source in claims_store.get(name).sources if isinstance(source, Page))


@pytest.mark.torch
def test_docs_verify_needs_a_folder(site_packages, tmp_path):
    done = docs_verify(site_packages, "--docs", str(tmp_path / "none"))
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1 and "no folder" in done.stderr
