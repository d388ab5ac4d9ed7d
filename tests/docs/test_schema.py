"""The published JSON Schema against what ``plan`` and ``tune`` really give, and against the record's own types."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from shardguide.accounting import Refusal, Support, records
from shardguide.frontends import conduct
from shardguide.frontends.earlier import Earlier
from shardguide.guidance import record as contract
from shardguide.guidance.dtypes import ITEMSIZE
from shardguide.guidance.serialise import to_dict
from shardguide.notebook import Notebook, Place
from shardguide.workflows import fields
from shardguide.workflows.backend.checks import Row as NeededOperation
from shardguide.workflows.backend.fields import FIELDS as BACKEND
from shardguide.workflows.fsdp2.fields import FIELDS as FSDP2
from shardguide.workflows.fsdp2.tables import Compared, Mapped
from shardguide.workflows.init.fields import FIELDS as INIT
from shardguide.workflows.join import Part as JoinPart
from shardguide.workflows.join.fields import FIELDS as JOIN
from shardguide.workflows.join.hooks import Shadowed
from shardguide.workflows.plan import PlanRequest, plan
from shardguide.workflows.tune.table import Row

from .samples import CASES, LLAMA, REQUESTS, ROOT, record

SCHEMA: dict[str, Any] = json.loads((ROOT / "docs" / "schema" / "guidance-1.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)

# Definition of the schema -> the named tuple that is written out under it.
TUPLES: dict[str, Any] = {
    "release": contract.Release, "question": contract.Question, "alternative": contract.Alternative,
    "decision": contract.Decision, "fact": contract.Fact, "verified": contract.Verified, "snippet": contract.Snippet,
    "earlier": Earlier, "check": contract.Check, "source": contract.Source, "next": contract.Next, "approval": contract.Approval,
    "rank_run": records.RankRun, "group": records.Group, "optimizer_support": Support, "refusal": Refusal,
    "before_after_row": Row, "needed_operation": NeededOperation,
    "join_part": JoinPart, "shadowed": Shadowed, "compared": Compared, "mapped": Mapped,
}  # fmt: skip
# Objects whose keys are data, not fields.
OPEN = {"answers", "formulas", "settings", "arguments"}


def errors(found: object) -> list[str]:
    return [f"{error.json_path}: {error.message[:200]}" for error in VALIDATOR.iter_errors(found)]


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert SCHEMA["properties"]["schema"]["const"] == contract.SCHEMA


@pytest.mark.parametrize("name", REQUESTS)
def test_real_records_are_valid(name: str) -> None:
    assert errors(record(name)) == []


@pytest.mark.parametrize("name", sorted(path.stem for path in CASES.glob("*.json")))
def test_a_plan_for_every_published_configuration_is_valid(name: str) -> None:
    given = LLAMA | {"model": str(CASES / f"{name}.json")}
    assert errors(json.loads(json.dumps(to_dict(plan(PlanRequest(given=given)))))) == []


def test_the_records_are_as_different_as_their_names() -> None:
    """Otherwise the tests above would test one thing twenty times."""
    assert {record(name)["status"] for name in REQUESTS} == {"complete", "needs_answers", "partial"}
    assert record("plan complete")["status"] == record("tune complete")["status"] == "complete"
    assert "per_rank_fsdp1" in record("plan every form")["accounting"]
    assert record("plan refused shapes")["accounting"]["refusals"]
    assert "per_rank_shard0" in record("plan other placements")["accounting"]
    assert record("plan tensor parallel")["accounting"]["layout"]["tp"] == 8
    assert record("plan stated size")["accounting"]["lower_bounds"]
    assert record("plan no optimizer")["accounting"]["per_rank"][0]["optimizer_bytes"] is None
    assert record("plan measured")["facts"]
    assert record("plan contradicted")["questions"]
    assert record("plan cannot fit")["checks"][0]["result"] == "failed"
    assert record("plan refused optimizer")["accounting"]["optimizer_support"]["status"] == "refused"
    assert record("tune complete")["benefit"]
    assert any("not read" in row["marks"] for row in record("backend between tables")["capabilities"]["rows"])
    assert record("init call")["checks"][0]["result"] == "failed"
    assert {row["result"] for row in record("join complete")["shadowed"]} == {"passed", "unknown"}
    assert record("fsdp2 complete")["mapping"] and not record("fsdp2 FSDP1 release")["mapping"]
    results = {check["result"] for name in REQUESTS for check in record(name)["checks"]}
    assert results == {"passed", "failed", "unknown"}


def test_definitions_have_the_fields_of_the_record() -> None:
    for name, kind in TUPLES.items():
        definition = SCHEMA["$defs"][name]
        assert tuple(definition["properties"]) == kind._fields, name
        assert definition["required"] == list(kind._fields), name
        assert definition["additionalProperties"] is False, name
    common = [field for field in contract.Guidance._fields if field not in ("extra", "request")]
    assert sorted(SCHEMA["required"]) == sorted(["schema", *common])
    assert sorted(SCHEMA["properties"]) == sorted(["schema", *common, "earlier"])


def test_closed_lists_are_those_of_the_product() -> None:
    told = {field.name for field in (*fields.PLAN, *BACKEND, *INIT, *JOIN, *FSDP2)}
    told |= {"topic", "architecture", "form"}  # of explain, which asks for none of them
    assert set(SCHEMA["properties"]["answers"]["propertyNames"]["enum"]) == told
    assert set(SCHEMA["$defs"]["accounting"]["properties"]["param_dtype"]["enum"]) == {*ITEMSIZE, None}
    assert set(SCHEMA["$defs"]["layout"]["properties"]["strategy"]["enum"]) == records.STRATEGIES


def test_a_request_that_was_asked_before_is_valid(tmp_path: Path) -> None:
    """The field that a front end adds: the same, under another release, and after a yes."""
    with Notebook(Place(str(tmp_path / "notebook.db"), True)) as notebook:

        def asked(torch: str) -> dict[str, Any]:
            given = LLAMA | {"torch": torch}
            return conduct.conduct(lambda remembered: plan(PlanRequest(given=given, remembered=remembered)), notebook)

        first, again = asked("2.13"), asked("2.13")
        notebook.approve(again["id"])
        other = asked("2.4")
    assert "earlier" not in first and first == {name: one for name, one in again.items() if name != "earlier"}
    assert errors(again) == errors(other) == []
    assert again["earlier"]["same"] and not other["earlier"]["same"] and other["earlier"]["state"] == "approved"
    for field in Earlier._fields:
        assert errors(other | {"earlier": {name: one for name, one in other["earlier"].items() if name != field}})
    assert errors(other | {"earlier": other["earlier"] | {"surprise": 1}})


def _described(schema: Any, where: str = "#") -> Iterator[str]:
    """Places of properties without a description, references followed to their definition."""
    if isinstance(schema, list):
        for number, item in enumerate(schema):
            yield from _described(item, f"{where}/{number}")
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key == "properties" and where.rpartition("/")[2] != "if":
                for name, item in value.items():
                    target = SCHEMA["$defs"][item["$ref"].rpartition("/")[2]] if "$ref" in item else item
                    if "description" not in target and not {"minItems", "maxItems", "items", "enum"} & set(target):
                        yield f"{where}/properties/{name}"
                    yield from _described(item, f"{where}/properties/{name}")
            else:
                yield from _described(value, f"{where}/{key}")


def test_every_field_is_described() -> None:
    assert list(_described(SCHEMA)) == []


def test_every_field_of_the_schema_occurs() -> None:
    """A field that no real record has would be a promise that nobody keeps."""
    seen: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            seen.update(value)
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    for name in REQUESTS:
        walk(record(name))
    seen.update(Earlier._fields)  # of a front end; the test above has real ones
    named = {name for definition in SCHEMA["$defs"].values() for name in definition.get("properties", {})}
    assert named - seen == set()


def _objects(value: Any, key: str = "") -> Iterator[dict[str, Any]]:
    """Every object of a record whose fields the schema fixes."""
    if isinstance(value, dict):
        if key not in OPEN:
            yield value
        for name, item in value.items():
            if key not in OPEN or key == "answers":
                yield from _objects(item, name)
    elif isinstance(value, list):
        for item in value[:2]:
            yield from _objects(item, key)


@pytest.mark.parametrize(
    "name",
    [
        "plan complete",
        "plan other placements",
        "plan stated size",
        "tune complete",
        "backend complete",
        "init complete",
        "join complete",
        "fsdp2 complete",
    ],
)
def test_a_field_too_many_is_an_error_everywhere(name: str) -> None:
    whole = record(name)
    found = list(_objects(whole))
    assert len(found) > 20
    for part in found:
        part["surprise"] = 1
        assert errors(whole), part
        del part["surprise"]
    assert errors(whole) == []


@pytest.mark.parametrize("name", ["plan complete", "tune complete", "backend complete", "init complete"])
def test_a_missing_field_is_an_error_everywhere(name: str) -> None:
    whole = record(name)
    optional = {"optimizer_support", "per_rank_shard0", "lower_bounds", "refusals"}
    for part in _objects(whole):
        for field in [field for field in part if field not in optional]:
            value = part.pop(field)
            assert errors(whole), f"{field} of {list(part)}"
            part[field] = value
    assert errors(whole) == []


BROKEN: dict[str, tuple[str, list[Any], Any]] = {
    "another schema": ("plan complete", ["schema"], "shardguide/2"),
    "an id that is no digest": ("plan complete", ["id"], "1"),
    "a workflow that is not described": ("plan complete", ["workflow"], "cook"),
    "a plan under tune's name": ("plan complete", ["workflow"], "tune"),
    "a status that contradicts the questions": ("plan no optimizer", ["status"], "complete"),
    "answers wanted, nothing asked": ("plan complete", ["status"], "needs_answers"),
    "a decision too few": ("plan complete", ["decisions"], record("plan complete")["decisions"][:8]),
    "a decision of another workflow": ("plan complete", ["decisions", 0, "id"], "checkpoints"),
    "a choice without a reason": ("plan complete", ["decisions", 0, "because"], []),
    "bytes as a decimal": ("plan complete", ["accounting", "per_rank", 0, "parameter_bytes"], 1.5),
    "bytes as text": ("plan complete", ["accounting", "per_rank", 0, "parameter_bytes"], "4015130624"),
    "a negative count": ("plan complete", ["accounting", "groups", 0, "stored_parameters"], -1),
    "elements not known": ("plan complete", ["accounting", "per_rank", 0, "parameters"], None),
    "a check that fits": ("plan complete", ["checks", 0, "result"], "fits"),
    "line 0": ("plan complete", ["sources", 0, "reopened"], {"where": "torch/x.py", "line": 0}),
    "an answer from nowhere": ("plan complete", ["answers", "gpus", "from"], "somewhere"),
    "an answer that is no field": ("plan complete", ["answers", "colour"], {"value": "red", "from": "user"}),
    "approval by default": ("plan complete", ["approval", "state"], "yes"),
    "a dtype that PyTorch lacks": ("plan complete", ["accounting", "param_dtype"], "float12"),
    "a decimal before": ("tune complete", ["before_after", 0, "before"], 0.5),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_record_is_refused(what: str) -> None:
    name, path, value = BROKEN[what]
    whole = record(name)
    part: Any = whole
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    assert errors(whole) != []


@pytest.mark.parametrize("name", REQUESTS)
def test_decisions_name_sources_that_are_listed(name: str) -> None:
    """Beyond what a schema can say: no dangling reference, no source twice, ranks without gaps."""
    whole = record(name)
    listed = [source["id"] for source in whole["sources"]]
    assert len(listed) == len(set(listed))
    for decision in whole["decisions"]:
        assert set(decision["sources"]) <= set(listed), decision["id"]
        assert decision["sources"], f"{decision['id']} names no source"
    for key in ("per_rank", "per_rank_shard0", "per_rank_fsdp1"):
        expected = 0
        for run in whole.get("accounting", {}).get(key, []):
            assert run["first_rank"] == expected <= run["last_rank"]
            expected = run["last_rank"] + 1
        if expected:
            assert expected == whole["hardware"]["gpus"]
