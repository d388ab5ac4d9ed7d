"""The documentation against the product: links lead somewhere, commands are accepted, tables say what is so."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from shardguide.accounting.records import Group, RankRun
from shardguide.frontends.cli.main import COMMANDS, EPILOG
from shardguide.frontends.cli.parser import Parser
from shardguide.guidance.serialise import to_dict
from shardguide.workflows.plan import PlanRequest, plan

from .samples import LLAMA, ROOT

PAGES = ["README.md", "CONTRIBUTING.md", "benchmarks/README.md", *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]  # fmt: skip
ELSEWHERE = {"docs/tensor-parallel-styles.md"}  # the files that it names are those of transformers
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@cache
def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def prose(page: str) -> str:
    return FENCE.sub("", text(page))


def _table(page: str, heading: str) -> list[list[str]]:
    """Cells of the first table under a heading, without its head."""
    part = text(page).split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def test_there_is_something_to_test() -> None:
    assert {"README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/json.md", "docs/numbers.md"} <= set(PAGES)
    assert len(_commands()) >= 4


# --- links and paths ----------------------------------------------------------------------------------------------


def _slug(heading: str) -> str:
    """The anchor that GitHub and its like make of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page: str) -> None:
    for target in LINK.findall(prose(page)):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = (ROOT / page).parent / name if name else ROOT / page
        assert file.resolve().is_relative_to(ROOT) and file.exists(), f"{page}: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {_slug(heading) for heading in headings}, f"{page}: {target}"


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE])
def test_files_that_are_named_exist(page: str) -> None:
    """Whole paths from the root, or the end of one (``cli/main.py``); made-up names are in capitals."""
    files = [str(path.relative_to(ROOT)) for folder in ("src", "tests", "scripts", "docs", "benchmarks", "examples")
             for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts]  # fmt: skip
    for span in SPAN.findall(prose(page)):
        for word in span.split():
            if not re.fullmatch(r"[\w.-]+(/[\w.*-]+)*\.(py|toml|json|md)|[\w.-]+(/[\w.-]+)+/", word) or word.isupper():
                continue
            if (
                "/" not in word
                or "NAME" in word
                or word.startswith(("torch/", "ds/", ".cursor/", ".vscode/", ".gemini/"))
            ):
                continue
            wanted = word.rstrip("/")
            pattern = re.compile("(.*/)?" + re.escape(wanted).replace(r"\*", "[^/]*"))
            assert any(pattern.fullmatch(file) for file in files), f"{page}: {word}"


@pytest.mark.parametrize("page", PAGES)
def test_no_page_names_a_machine(page: str) -> None:
    for word in ("/tmp/", "/home/", "/root/", "/Users/", "/opt/", "/work/"):
        assert word not in text(page), word


# --- commands -----------------------------------------------------------------------------------------------------


def _commands() -> list[tuple[str, str]]:
    """(page, command line) of everything in a code block that starts with shardguide; shell comments gone."""
    out = []
    for page in PAGES:
        for _, block in FENCE.findall(text(page)):
            for line in block.replace("\\\n", " ").splitlines():
                stripped = line.strip().removeprefix("$ ")
                line_ = " ".join(stripped.partition(" # ")[0].split())
                if line_.startswith("shardguide "):  # alone it opens the conversation
                    out.append((page, line_))
    return out


@cache
def _parser(command: str) -> Parser:
    parser = Parser(prog=f"shardguide {command}")
    import_module(f"shardguide.frontends.cli.{COMMANDS[command][0]}").configure(parser)
    return parser


def _options(command: str) -> set[str]:
    return {option for action in _parser(command)._actions for option in action.option_strings}


@pytest.mark.parametrize(("page", "line"), _commands())
def test_commands_are_accepted(page: str, line: str) -> None:
    """A whole command must parse; of an outline (brackets, bars, dots) every option must exist."""
    if re.search(r"[\[(|]|\.\.\.", line):
        for part in line.split("shardguide ")[1:]:
            command = part.split()[0]
            assert command in COMMANDS, line
            assert set(re.findall(r"(?<![\w-])--[a-z-]+", part)) <= _options(command), line
        return
    words = shlex.split(line)[1:]
    if words[0].startswith("-"):
        return
    assert words[0] in COMMANDS, line
    _parser(words[0]).parse_args(words[1:])


@pytest.mark.parametrize("page", PAGES)
def test_options_that_are_named_exist(page: str) -> None:
    known = {option for command in COMMANDS for option in _options(command)}
    for span in SPAN.findall(prose(page)):
        if span.startswith("--"):
            assert span.split()[0].partition("=")[0] in known, f"{page}: {span}"
        elif re.match("shardguide [a-z]", span):
            assert span.split()[1] in COMMANDS, f"{page}: {span}"


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_exist(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    named = set(re.findall(r"(?:^|`|\s)make ([a-z-]+)(?=`|\s*$)", text(page), re.MULTILINE))
    assert named <= targets


def test_python_in_the_documentation_runs() -> None:
    blocks = [block for page in PAGES for language, block in FENCE.findall(text(page)) if language == "python"]
    assert blocks
    for block in blocks:
        namespace: dict[str, object] = {}
        exec(compile(block, "documentation", "exec"), namespace)  # noqa: S102 - our own page
        record = namespace.get("record") or to_dict(namespace["answer"])  # type: ignore[arg-type]
        assert isinstance(record, dict) and record["schema"] == "shardguide/1"


# --- tables -------------------------------------------------------------------------------------------------------


def test_exit_statuses_are_those_of_the_help() -> None:
    said = dict(re.findall(r"^  (\d)  (.+)$", EPILOG, re.MULTILINE))
    assert len(said) == 4
    assert dict(_table("docs/json.md", "Exit statuses")) == said
    readme = re.findall(r"^\| (\d) \| (.+?) \|$", text("README.md"), re.MULTILINE)
    assert [status for status, _ in readme] == sorted(said)


def test_the_fields_of_the_record_are_listed() -> None:
    schema = json.loads((ROOT / "docs" / "schema" / "guidance-1.schema.json").read_text(encoding="utf-8"))
    page = text("docs/json.md")
    rows = re.findall(r"^\| (`[^|]+?) \|", page.split("## Exit statuses")[0], re.MULTILINE)
    listed = {name for row in rows for name in SPAN.findall(row)}
    assert listed == {*schema["properties"], "notes"}
    nine = schema["allOf"][0]["then"]["properties"]["decisions"]["items"]["properties"]["id"]["enum"]
    described = page.partition("these nine:")[2].partition(";")[0]
    assert SPAN.findall(described) == nine


def test_the_objects_of_the_other_commands_have_the_fields_listed(tmp_path: Path) -> None:
    rows = {row[0]: SPAN.findall(row[1]) for row in _table("docs/json.md", "Other commands")}

    def call(*arguments: str) -> dict[str, object]:
        command = [sys.executable, "-m", "shardguide", *arguments, "--json", "--notebook", str(tmp_path / "n.db")]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode in (0, 3), done.stderr
        found: dict[str, object] = json.loads(done.stdout)
        return found

    def fields(found: dict[str, object]) -> list[str]:
        """Of the object, and of the first entry of its list of objects."""
        inner = [
            value[0] for value in found.values() if isinstance(value, list) and value and isinstance(value[0], dict)
        ]
        return [*found, *(inner[0] if inner else ())]

    identity = str(call("plan", "7b", "--gpus", "8", "--torch", "2.13")["id"])
    assert fields(call("answers", "set", "tp", "1")) == rows["`answers show`, `answers set NAME VALUE`"]
    assert fields(call("answers", "forget", "tp")) == rows["`answers forget NAME`"]
    assert fields(call("history")) == rows["`history`"]
    assert fields(call("reject", identity)) == rows["`approve ID`, `reject ID`"]


def test_every_exact_field_has_its_formula() -> None:
    page = text("docs/numbers.md")
    for name in (*RankRun._fields[2:], *(field for field in Group._fields if field.endswith("_bytes"))):
        assert f"`{name}`" in page, name


def test_the_small_example_of_numbers() -> None:
    """Ten rows of four, cut as torch.chunk cuts: ceil(10 / 6) = 2 rows a piece, until there are none left."""
    rows = list(range(10))
    size = 2
    pieces = [rows[at : at + size] for at in range(0, len(rows), size)]
    pieces += [[] for _ in range(6 - len(pieces))]
    expected = [
        [str(rank), str(4 * len(piece)), str(4 * size), str(2 * 4 * len(piece))] for rank, piece in enumerate(pieces)
    ]
    assert _table("docs/numbers.md", "One parameter") == expected


def test_the_llama_example_of_numbers() -> None:
    given = LLAMA | {"gpus": "6", "nodes": "1"}
    del given["inter"]
    runs = plan(PlanRequest(given=given)).extra["accounting"]["per_rank"]
    fields = ("parameters", "stored_parameters", "parameter_bytes", "gradient_bytes", "optimizer_bytes")
    expected = []
    for run in runs:
        first, last = run["first_rank"], run["last_rank"]
        ranks = f"{first}–{last}" if first != last else str(first)
        expected.append([ranks, *(f"{run[field]:,}" for field in fields)])
    rows = re.findall(r"^\| (\d(?:–\d)?) \| ([\d,]{12,}.*) \|$", text("docs/numbers.md"), re.MULTILINE)
    assert [[first, *rest.split(" | ")] for first, rest in rows] == expected
    # What fully_shard and AdamW really hold there, as published with the field's experiments.
    assert expected[-1][1:3] == ["1,335,864,553", "1,338,879,339"]


@pytest.mark.torch
def test_optimizers_keep_what_the_table_says() -> None:
    """The table's counts against the optimizers' own states, stepped by PyTorch."""
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    rows = {name: row for row in _table("docs/numbers.md", "Optimizer state") for name in SPAN.findall(row[0])}
    made = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad,
            "rmsprop": torch.optim.RMSprop, "muon": torch.optim.Muon}  # fmt: skip
    assert set(rows) == set(made)
    for name, kind in made.items():
        parameter = torch.nn.Parameter(torch.ones(4, 4))
        parameter.grad = torch.ones(4, 4)
        optimizer = kind([parameter], lr=0.1)
        optimizer.step()
        state = [value for value in optimizer.state[parameter].values() if isinstance(value, torch.Tensor)]
        tensors = sum(value.shape == parameter.shape for value in state)
        assert (rows[name][1].split()[0], rows[name][2]) == (str(tensors), str(len(state) - tensors)), name


def test_the_licence_is_the_one_declared() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    name = re.search(r'authors = \[\{ name = "([^"]+)"', project)
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert 'license = "MIT"' in project and name is not None
    assert licence.startswith("MIT License\n") and name[1] in licence
