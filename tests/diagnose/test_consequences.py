"""Where only a consequence was found, that is the answer: which rank to look for, and which evidence to hand over."""

from __future__ import annotations

import pytest

from shardguide.frontends.mcp.bounded import quoted
from shardguide.frontends.mcp.summary import summary
from shardguide.frontends.render.diagnose_report import report
from shardguide.frontends.render.diagnose_view import view
from shardguide.frontends.render.plain import render
from shardguide.guidance.record import Guidance
from shardguide.guidance.serialise import to_dict
from shardguide.workflows.diagnose import DiagnoseRequest, diagnose

CLOSED = "[rank2]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.5]:3456"
LINES = {
    CLOSED: "peer_connection_lost",
    "torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3.": "nccl_comm_aborted",
    "terminate called after throwing an instance of 'c10::DistBackendError'": "nccl_watchdog_exit",
    "node1:1:2 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node2<51159>": "nccl_peer_closed",
    "RuntimeError: Connection reset by peer": "peer_connection_lost",
    "RuntimeError: Broken pipe": "peer_connection_lost",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:": "child_failed",
}


def told(text: str) -> Guidance:
    return diagnose(DiagnoseRequest(text=text, torch="2.13"))


@pytest.mark.parametrize("text", LINES)
def test_it_is_said_first_everywhere(text: str) -> None:
    record = to_dict(told(text))
    assert (record["outcome"], record["diagnoses"], record["status"]) == ("consequence", [], "partial")
    assert LINES[text] in [one["id"] for one in record["consequences"]]
    assert summary(quoted(record)).startswith("Only a consequence: ")
    for page in (view(record, verbose=False), report(record)):
        shown = render(page)
        assert shown.splitlines()[0].lstrip("# ").startswith("Only a consequence")
        head = shown[: shown.index("Checks")] if "Checks" in shown else shown
        assert "rank that ended first" in head and "logs of all ranks" in head and "Flight Recorder" in head
        assert shown.count("torchrun's table names it") == 1


def test_what_is_asked_for_and_leads_on() -> None:
    record = told(CLOSED)
    assert [one.id for one in record.questions] == ["paths"]
    assert [(one.tool, one.arguments) for one in record.next] == [
        ("diagnose", {"paths": "PATH"}),
        ("explain", {"topic": "debugging-hangs"}),
    ]
    assert record.extra["consequences"][0]["ranks"] == [2]
    assert "address" in record.extra["notes"][0]  # 10.0.0.5: that is where to begin


def test_the_rank_that_was_lost_is_named_where_the_line_names_it() -> None:
    found = told("RuntimeError: [Rank 0]: Connection closed by peer while waiting for recv from rank 5")
    assert found.extra["outcome"] == "consequence"
    assert "rank 5" in found.extra["notes"][0]


def test_beside_an_error_of_its_own_it_is_not_the_answer() -> None:
    found = told(f"{CLOSED}\n[rank3]: FlumoxError: the gizmo is not greased").extra
    assert found["outcome"] == "diagnosed"
    assert (found["diagnoses"][0]["id"], found["diagnoses"][0]["ranks"]) == ("script_raised", [3])
    assert found["consequences"] == []
