"""The package is on every command's path: what it costs to import and to use is part of its contract."""

from __future__ import annotations

import subprocess
import sys
import time

from shardguide.accounting import FORMULAS, Group, Layout, RankRun, Request, groups, per_rank, take
from shardguide.knowledge.families import index

from .zoo import LLAMA_3_1_8B

LLAMA_3_1_405B = LLAMA_3_1_8B | {
    "hidden_size": 16384, "intermediate_size": 53248, "num_attention_heads": 128, "num_hidden_layers": 126,
}  # fmt: skip


def test_405b_on_16384_ranks_takes_milliseconds() -> None:
    model = index.build(LLAMA_3_1_405B, "transformers5")
    assert model.size == 405_853_388_800
    request = Request(model, Layout(1, 16384), param_dtype="float32", mp_param_dtype="bfloat16", optimizer="adamw")
    best = 1.0
    for _ in range(10):
        start = time.process_time()
        survey = take(request)
        runs, found = per_rank(request, survey), groups(request, survey)
        best = min(best, time.process_time() - start)
    assert len(found) == 128
    assert sum(run.parameters * (run.last_rank - run.first_rank + 1) for run in runs) == model.size
    assert best < 0.005


def test_imports_nothing_heavy() -> None:
    code = (
        "import sys, typing; import shardguide.accounting; "
        "print(sorted({'torch', 'dataclasses', 'inspect', 'pathlib', 'json', 'rich', 'yaml'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    bare = subprocess.run(
        [sys.executable, "-c", code.replace("import shardguide.accounting; ", "")],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == bare.stdout


def test_every_field_has_its_formula() -> None:
    fields = set(RankRun._fields) - {"first_rank", "last_rank", "device_bytes", "host_bytes"}
    fields |= {f"groups.{field}" for field in Group._fields if field.endswith("_bytes")}
    assert fields == set(FORMULAS)
