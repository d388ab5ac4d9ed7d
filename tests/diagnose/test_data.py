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


# Lines of public threads other than those that the diagnoses cite.
THREADS = {
    "https://github.com/NVIDIA/nccl/issues/1129": (
        "node08:6561:6561 [0] misc/ibvwrap.cc:280 NCCL WARN Call to ibv_create_qp failed",
        "ib_call_failed",
    ),
    "https://github.com/vllm-project/vllm/issues/18831": (
        "a100-8:421780:421780 [0] misc/shmutils.cc:129 NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl- "
        "(size 192814336), error: No such file or directory (2)",
        "nccl_shm_attach",
    ),
    "https://github.com/kserve/kserve/issues/3791": (
        "hugging-model-1:1:1 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-H1dBqY to 9637892 bytes\n"
        "hugging-model-1:1:1 [0] misc/shmutils.cc:113 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-H1dBqY",
        "dev_shm_too_small",
    ),
    "https://github.com/nextflow-io/nextflow/issues/5932": (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0. Some of the step tasks have been OOM Killed.\n"
        "srun: error: sdumont6156: task 0: Out Of Memory",
        "host_oom_cgroup",
    ),
    "https://github.com/ZettaAI/zetta_utils/issues/671": (
        "srun: Job step aborted: Waiting up to 47 seconds for job step to finish.\n"
        "slurmstepd: error: *** STEP 494583.0 ON node1 CANCELLED AT 2024-04-20T09:09:37 DUE TO TIME LIMIT ***",
        "slurm_time_limit",
    ),
    "https://github.com/Lightning-AI/pytorch-lightning/issues/19598": (
        "RuntimeError: DataLoader worker (pid 246611) is killed by signal: Aborted. ",
        "worker_crashed",
    ),
    "https://github.com/huggingface/accelerate/issues/1519": (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "============================================================\n"
        "v2-1_mgpus_train_enc_dec.py FAILED\n"
        "------------------------------------------------------------\n"
        "Failures:\n  <NO_OTHER_FAILURES>\n"
        "------------------------------------------------------------\n"
        "Root Cause (first observed failure):\n[0]:\n"
        "  time      : 2023-06-03_22:45:01\n  host      : gpu187.cluster.local\n  rank      : 4 (local_rank: 0)\n"
        "  exitcode  : 1 (pid: 19401)\n  error_file: <N/A>\n"
        "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
        "============================================================",
        "rank_exited_nonzero",
    ),
}


@pytest.mark.parametrize("url", THREADS)
def test_lines_of_other_threads(url: str, tmp_path: Path) -> None:
    text, wanted = THREADS[url]
    outcome, ids = found(text + "\n", tmp_path)
    assert (outcome, ids[:1]) == ("diagnosed", [wanted])
