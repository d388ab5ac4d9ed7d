"""``migrate`` and then ``apply``: what is written is the diff that was shown, and only to the files that were read."""

from __future__ import annotations

import hashlib
import json
import subprocess

from ..frontends.conftest import Shardguide, shardguide

__all__ = ["shardguide"]

PROGRAM = """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def main(model, data):
    model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}))  # grüße
    optimizer = torch.optim.AdamW(model.parameters())
    for x in data:
        model(x).sum().backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()


def first():
    return 1


def second():
    return 2
"""
YAML = """\
distributed_type: FSDP
fsdp_config:
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
"""


def _asked(shardguide: Shardguide) -> dict[str, object]:
    ran = shardguide("migrate", ".", "--torch", "2.13", "--json")
    assert ran.status in (0, 1), ran.err
    return dict(ran.json)


def test_apply_writes_exactly_the_diff(shardguide: Shardguide) -> None:
    folder = shardguide.folder
    files = {"train.py": PROGRAM, "sub/windows.py": PROGRAM.replace("\n", "\r\n"), "fsdp.yaml": YAML}
    (folder / "sub").mkdir()
    for name, text in files.items():
        (folder / name).write_bytes(text.encode())
    record = _asked(shardguide)
    assert record["digests"] == {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    # Another program's reading of the same diff says what is to stand in the files.
    other = folder.parent / "patched"
    (other / "sub").mkdir(parents=True)
    for name, text in files.items():
        (other / name).write_bytes(text.encode())
    subprocess.run(
        ["patch", "--binary", "-p1"], cwd=other, input=str(record["diff"]).encode(), check=True, capture_output=True
    )
    ran = shardguide("apply", str(record["id"]), "--yes", "--json")
    assert ran.status == 0, ran.err
    assert sorted(json.loads(ran.out)["written"]) == sorted(files)
    for name, text in files.items():
        assert (folder / name).read_bytes() == (other / name).read_bytes() != text.encode()
        assert (folder / f"{name}.bak").read_bytes() == text.encode()
    assert _asked(shardguide)["diff"] == ""


def test_apply_refuses_a_file_that_changed_elsewhere(shardguide: Shardguide) -> None:
    path = shardguide.folder / "train.py"
    path.write_text(PROGRAM)
    (shardguide.folder / "other.py").write_text("import torch.distributed\n\nvalue = 1\n")
    first = _asked(shardguide)
    edited = PROGRAM.replace("return 2", "return 3")  # far from every change
    path.write_text(edited)
    ran = shardguide("apply", str(first["id"]), "--yes")
    assert ran.status == 2 and "has changed since the answer was given" in ran.err
    assert path.read_text() == edited
    second = _asked(shardguide)
    assert second["diff"] == first["diff"] and second["id"] != first["id"]
    (shardguide.folder / "other.py").write_text(
        "import torch.distributed\n\nvalue = 2\n"
    )  # not changed by the diff, but read
    assert _asked(shardguide)["id"] not in (first["id"], second["id"])
    assert shardguide("apply", str(second["id"]), "--yes").status == 0
