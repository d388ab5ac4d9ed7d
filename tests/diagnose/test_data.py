"""Every diagnosis against its own example and near miss, and the data as a whole."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shardguide.workflows.diagnose import DiagnoseRequest, diagnose

tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")

SOURCES = Path(__file__).parent.parent.parent / "src" / "shardguide" / "knowledge" / "diagnoses"
# Where another diagnosis stands above for the example's lines alone: words of the question or other evidence decide between them.
BEFORE = {
    "ac_nonreentrant_metadata_check": "ac_context_manager_exited",
    "store_reuse": "store_barrier_rank_missing",
    "compile_prefix_in_state_dict": "dcp_missing_key",
    "optimizer_state_key_mismatch": "dcp_missing_key",
    "ddp_inputs_modified": "backward_inplace",
}
FAMILIES = {
    "nccl-watchdog", "nccl-setup", "nccl-network", "nccl-shm", "nccl-ib", "nccl-p2p", "nccl-nvlink", "efa", "gloo", "store", "gpu-fault",
    "gpu-driver", "cuda", "cuda-build", "device-mapping", "elastic", "rendezvous", "launch", "host", "slurm", "kubernetes", "cloud",
    "container", "data", "framework", "deepspeed", "ray", "compile", "amp", "numerics", "autograd", "model", "rocm", "npu", "xpu",
    "process-group", "flight-recorder", "memory",
}  # fmt: skip


def every() -> list[dict[str, Any]]:
    """All diagnoses as written."""
    return [
        one
        for path in sorted(SOURCES.glob("*.toml"))
        for one in tomllib.loads(path.read_text("utf-8")).get("diagnosis", ())
    ]


ALL = every()


def found(text: str, folder: Path) -> tuple[str, list[str]]:
    """The outcome for a log of these lines, and the ids."""
    log = folder / "some.log"
    log.write_text(text, encoding="utf-8")
    extra = diagnose(DiagnoseRequest((str(log),), torch="2.13")).extra
    return extra["outcome"], [one["id"] for one in extra["diagnoses"]]


@pytest.mark.parametrize("one", [one for one in ALL if one.get("example")], ids=lambda one: one["id"])
def test_example_and_near_miss(one: dict[str, Any], tmp_path: Path) -> None:
    outcome, ids = found(one["example"], tmp_path)
    if one["kind"] == "cascade":
        assert one["id"] not in ids
        assert outcome != "no_failure", "what is only noticed is no healthy log"
    else:
        assert ids[:1] == [one["id"]] or ids[:1] == [BEFORE.get(one["id"])]
        assert one["id"] in ids[:3]
    if one.get("near_miss"):
        assert one["id"] not in found(one["near_miss"], tmp_path)[1]


def test_no_two_for_one_cause_and_fix() -> None:
    assert [name for name, number in Counter(one["id"] for one in ALL).items() if number > 1] == []
    for fields in (("title",), ("cause", "fix")):
        texts = Counter(" ".join(" ".join(one[field].split()).lower() for field in fields) for one in ALL)
        assert [text for text, number in texts.items() if number > 1] == []


def test_every_sign_says_where_it_comes_from() -> None:
    for one in ALL:
        for sign in one.get("sign", ()):
            origin = sign["origin"]
            assert len(origin) > 4, f"{one['id']}: {origin}"


def test_all_families_are_covered() -> None:
    of = Counter(one["family"] for one in ALL)
    assert set(of) >= FAMILIES
    assert len(ALL) >= 250
    assert sum(one["kind"] == "cascade" for one in ALL) >= 10


def test_what_stands_in_healthy_logs_is_no_sign() -> None:
    """Fragments that field notes list as signatures although they stand in healthy logs as well."""
    bare = {"using GPU ", "environment variable", "got signal: ", "via P2P/"}
    alone = {
        sign["text"] for one in ALL for sign in one.get("sign", ()) if not sign.get("where") and not one.get("all")
    }
    assert not {text for text in alone if any(text.strip() in word or word.strip() == text.strip() for word in bare)}
