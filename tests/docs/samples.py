"""Real records of ``plan`` and ``tune``, complete and incomplete, for the tests of their published form."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from shardguide.guidance.serialise import to_dict, to_json
from shardguide.workflows.ask import AskRequest, ask
from shardguide.workflows.backend import BackendRequest, backend
from shardguide.workflows.diagnose import DiagnoseRequest, diagnose
from shardguide.workflows.explain import ExplainRequest, explain
from shardguide.workflows.fsdp2 import Fsdp2Request, fsdp2
from shardguide.workflows.init import InitRequest, init
from shardguide.workflows.join import JoinRequest, join
from shardguide.workflows.migrate import MigrateRequest
from shardguide.workflows.migrate import run as run_migrate
from shardguide.workflows.plan import PlanRequest, plan
from shardguide.workflows.review import ReviewRequest, check
from shardguide.workflows.tune import TuneRequest, tune

ROOT = Path(__file__).resolve().parent.parent.parent
CASES = ROOT / "tests" / "knowledge" / "family_cases"
READERS = ROOT / "tests" / "readers" / "data"
LOGS = ROOT / "tests" / "docs" / "logs"
CODE = ROOT / "tests" / "docs" / "code"
PROGRAMS = Path(__file__).parent.parent / "migrate" / "programs"
LLAMA = {
    "model": str(ROOT / "examples" / "llama-3.1-8b"),
    "gpus": "16", "nodes": "2", "gpu": "H100 SXM 80GB", "intra": "nvlink", "inter": "infiniband",
    "optimizer": "adamw", "param_dtype": "float32", "torch": "2.13",
}  # fmt: skip
MIXTRAL = LLAMA | {"model": str(CASES / "mixtral-8x7b-v0.1.json"), "gpus": "1024", "nodes": "128", "strategy": "full"}


def _without(*names: str) -> dict[str, str]:
    return {name: value for name, value in LLAMA.items() if name not in names}


def _plan(given: dict[str, str], **more: Any) -> PlanRequest:
    return PlanRequest(given=given, **more)


REQUESTS: dict[str, Callable[[], Any]] = {
    "plan complete": lambda: plan(_plan(LLAMA)),
    "plan nothing known": lambda: plan(_plan({})),
    "plan model only": lambda: plan(_plan({"model": LLAMA["model"], "torch": "2.13"})),
    "plan stated size": lambda: plan(_plan(LLAMA | {"model": "7b"})),
    "plan stated size, no dtype": lambda: plan(_plan({"model": "7b", "gpus": "8", "torch": "2.13"})),
    "plan no optimizer": lambda: plan(_plan(_without("optimizer"))),
    "plan other placements": lambda: plan(_plan(MIXTRAL)),
    "plan tensor parallel": lambda: plan(_plan(LLAMA | {"gpus": "64", "nodes": "8", "tp": "8", "strategy": "full"})),
    "plan offload": lambda: plan(_plan(LLAMA | {"offload": "yes", "host_memory": "2TB"})),
    "plan cannot fit": lambda: plan(_plan(LLAMA | {"strategy": "none"})),
    "plan refused optimizer": lambda: plan(_plan(LLAMA | {"optimizer": "adafactor"})),
    "plan unknown optimizer": lambda: plan(_plan(LLAMA | {"optimizer": "adamw8bit"})),
    "plan cpu": lambda: plan(_plan(_without("gpu", "intra") | {"device": "cpu"})),
    "plan partition": lambda: plan(_plan(_without("gpu") | {"gpu": "H100", "gpu_memory": "24GB"})),
    "plan refused shapes": lambda: plan(
        _plan(LLAMA | {"model": str(Path(__file__).parent / "tied-manifest.json"), "strategy": "full"})
    ),
    "plan FSDP1 release": lambda: plan(_plan(LLAMA | {"torch": "2.2"})),
    "plan every form": lambda: plan(_plan(LLAMA, also=("fsdp1", "accelerate", "torchtitan"))),
    "plan from files": lambda: plan(
        _plan(_without("gpu", "intra"), files=(str(READERS / "hw" / "smi-h100-590.txt"), str(READERS / "hw" / "topo-h100-8gpu.txt")))
    ),
    "plan contradicted": lambda: plan(_plan(LLAMA | {"intra": "pcie"}, files=(str(READERS / "hw" / "topo-h100-8gpu.txt"),))),
    "plan measured": lambda: plan(
        _plan(LLAMA, measured=(str(READERS / "measured" / "all_reduce-2x8-a100.txt"),))
    ),
    "tune nothing known": lambda: tune(TuneRequest(_plan({}))),
    "tune model only": lambda: tune(TuneRequest(_plan({"model": LLAMA["model"], "torch": "2.13"}))),
    "tune current unknown": lambda: tune(TuneRequest(_plan(LLAMA))),
    "tune complete": lambda: tune(TuneRequest(_plan(LLAMA), ("api=fsdp2", "param=fp16", "offload=yes", "strategy=full"))),
    "tune stated size": lambda: tune(TuneRequest(_plan(LLAMA | {"model": "7b"}), ("param=bf16",))),
    "tune accelerate": lambda: tune(
        TuneRequest(_plan(LLAMA, current=str(READERS / "hw" / "accelerate-fsdp1-full.yaml")))
    ),
    "backend nothing known": lambda: backend(BackendRequest({"torch": "2.13"})),
    "backend complete": lambda: backend(
        BackendRequest({"torch": "2.13", "device": "cuda", "inter": "infiniband", "os": "linux", "offload": "yes"})
    ),
    "backend between tables": lambda: backend(
        BackendRequest({"torch": "2.8", "device": "xpu", "inter": "ethernet", "os": "linux", "needs": "all"})
    ),
    "join nothing known": lambda: join(JoinRequest({"torch": "2.13"})),
    "join complete": lambda: join(
        JoinRequest({"torch": "2.13", "with": "ddp,zero,own", "uneven": "yes", "on_exhausted": "drain", "collectives": "yes"})
    ),
    "join code": lambda: join(JoinRequest({"torch": "2.13"}, paths=(str(ROOT / "tests" / "docs" / "joined.py"),))),
    "join FSDP": lambda: join(JoinRequest({"torch": "2.13", "with": "fsdp", "uneven": "unknown", "on_exhausted": "stop"})),
    "ask answered": lambda: ask(AskRequest("show me code that clips gradients under FSDP2", torch="2.13")),
    "ask command": lambda: ask(AskRequest("which configuration for my 70B on 4x8 H100?", torch="2.13")),
    "ask name": lambda: ask(AskRequest("what does FSDPModule.reshard do on 2.8?")),
    "ask not known": lambda: ask(AskRequest("how do I bake bread?", torch="2.13")),
    "explain topic": lambda: explain(ExplainRequest("gradient-clipping", torch="2.13")),
    "explain table": lambda: explain(ExplainRequest("backend-capabilities", torch="2.13")),
    "explain older release": lambda: explain(ExplainRequest("wrapping", architecture="moe", form="fsdp2", torch="2.4")),
    "explain script": lambda: explain(ExplainRequest(full_script=True, torch="2.13")),
    "diagnose killed": lambda: diagnose(DiagnoseRequest((str(LOGS / "killed.log"),), torch="2.13")),
    "diagnose with environment": lambda: diagnose(
        DiagnoseRequest((str(LOGS / "killed.log"), str(READERS / "hw" / "env-2.5.1-h100x8.txt")), torch="2.5")
    ),
    "diagnose nothing": lambda: diagnose(DiagnoseRequest((str(LOGS / "quiet.log"),), torch="2.13")),
    "review findings": lambda: check(ReviewRequest((str(CODE / "wrong.py"), str(CODE / "broken.txt")), torch="2.13")),
    "review notebook": lambda: check(ReviewRequest((str(CODE / "wrong.ipynb"),), torch="2.13")),
    "review rank": lambda: check(ReviewRequest((str(CODE / "rank.py"),), torch="2.13")),
    "migrate": lambda: run_migrate(MigrateRequest((str(PROGRAMS / "config_strategy.py"), str(PROGRAMS / "no_shard.py")), torch="2.13")),
    "migrate unread": lambda: run_migrate(MigrateRequest((str(CODE / "broken.txt"),), torch="2.13")),
    "review nothing": lambda: check(ReviewRequest((str(CODE / "right.py"),), torch="2.13")),
    "diagnose unknown": lambda: diagnose(DiagnoseRequest((str(LOGS / "unknown.log"),), torch="2.13")),
    "fsdp2 nothing known": lambda: fsdp2(Fsdp2Request({"torch": "2.13"})),
    "fsdp2 complete": lambda: fsdp2(Fsdp2Request({"torch": "2.13", "goal": "memory,compile,migrate", "using": "fsdp1"})),
    "fsdp2 FSDP1 release": lambda: fsdp2(Fsdp2Request({"torch": "2.1", "goal": "sharding,migrate"})),
    "fsdp2 private module": lambda: fsdp2(Fsdp2Request({"torch": "2.4", "goal": "frozen,migrate"})),
    "init nothing known": lambda: init(InitRequest({"torch": "2.13"})),
    "init complete": lambda: init(
        InitRequest({"torch": "2.13", "method": "tcp", "backend": "gloo", "address": "node0:29500", "world_size": "2", "rank": "1"})
    ),
    "init file": lambda: init(InitRequest({"torch": "2.8", "method": "file", "backend": "nccl", "path": "/shared/run"})),
    "init call": lambda: init(InitRequest({"torch": "2.13"}, call="init_process_group('nccl', ranks=2)")),
}  # fmt: skip


@cache
def _text(name: str) -> str:
    return to_json(to_dict(REQUESTS[name]()))


def record(name: str) -> dict[str, Any]:
    """A fresh copy of the record, as a reader of ``--json`` gets it."""
    found: dict[str, Any] = json.loads(_text(name))
    return found
