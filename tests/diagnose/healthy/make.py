"""Make the healthy logs again: real training of many kinds over Gloo, all of which ends well.

    python tests/diagnose/healthy/make.py [KIND…]

Each kind is run by torchrun (or as it says) and what it prints is kept as ``made-KIND.log``, with paths and hosts replaced.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
# kind: (processes, environment); 0 processes: without torchrun.
KINDS: dict[str, tuple[int, dict[str, str]]] = {
    "ddp": (2, {}),
    "ddp-debug": (2, {"TORCH_DISTRIBUTED_DEBUG": "INFO", "TORCH_CPP_LOG_LEVEL": "INFO"}),
    "ddp-unused": (2, {}),
    "ddp-join": (2, {}),
    "fsdp2": (2, {}),
    "fsdp2-accumulate": (2, {"TORCH_LOGS": "+distributed"}),
    "device-mesh": (2, {}),
    "dcp": (2, {}),
    "dcp-async": (2, {}),
    "checkpointing": (2, {}),
    "tensor-parallel": (2, {}),
    "compile": (2, {"TORCH_LOGS": "recompiles"}),
    "loader": (2, {}),
    "caught": (2, {"LOGLEVEL": "INFO"}),
    "retry": (2, {}),
    "trainer": (0, {}),
    "trainer-ddp": (2, {}),
    "accelerate": (2, {}),
    "single": (0, {}),
    "restart-agent-info": (2, {"LOGLEVEL": "DEBUG"}),
}


def train(kind: str) -> None:
    """What each process does."""
    import warnings

    import torch
    import torch.distributed as dist
    from torch import nn

    if kind.startswith("trainer"):
        _trainer()
        return
    if kind == "accelerate":
        _accelerate()
        return
    if kind == "single":
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(20):
            loss = model(torch.randn(8, 4)).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(f"step {step} loss {loss.item():.4f} error rate {0.5 / (step + 1):.3f}")
        return
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    if kind.startswith("fsdp2") or kind.startswith("dcp"):
        from torch.distributed.fsdp import fully_shard

        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        fully_shard(model)
    elif kind == "device-mesh":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

        print(init_device_mesh("cpu", (2,)), size_based_auto_wrap_policy.__name__)
    elif kind == "tensor-parallel":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        parallelize_module(model, init_device_mesh("cpu", (2,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    else:
        if kind == "ddp-unused":
            model.add_module("extra", nn.Linear(16, 16))
        if kind == "compile":
            model = torch.compile(model, backend="eager")
        model = nn.parallel.DistributedDataParallel(model, find_unused_parameters=kind == "ddp-unused")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    _steps(kind, rank, model, optimizer)
    if kind.startswith("dcp"):
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_state_dict

        with tempfile.TemporaryDirectory() as folder:
            places = [folder]
            dist.broadcast_object_list(places)
            weights, state = get_state_dict(model, optimizer)
            whole = {"model": weights, "optim": state}
            if kind == "dcp-async":
                dcp.async_save(whole, checkpoint_id=places[0] + "/step").result()
            else:
                dcp.save(whole, checkpoint_id=places[0] + "/step")
            dist.barrier()
            dcp.load(whole, checkpoint_id=places[0] + "/step")
            print(f"[rank{rank}] checkpoint saved and loaded")
            dist.barrier()
    if kind == "caught":
        import logging
        import traceback

        logging.basicConfig(level=logging.INFO)
        try:
            torch.load("/nowhere/step_0.pt")
        except FileNotFoundError:
            logging.info("no checkpoint to resume from, starting at step 0")
        warnings.warn("error handling: 0 failed batches, 2 retried", stacklevel=1)
        logging.info("traceback module %s is there for later", traceback.__name__)
    if kind == "retry":
        for attempt in (1, 2):
            print(
                f"[rank{rank}] upload attempt {attempt}: {'connection error, retrying in 1 s' if attempt == 1 else 'succeeded'}"
            )
    dist.destroy_process_group()


def _steps(kind: str, rank: int, model, optimizer) -> None:  # type: ignore[no-untyped-def]
    import contextlib

    import torch
    import torch.distributed as dist
    from torch.utils.checkpoint import checkpoint

    batches = [torch.randn(8, 16) for _ in range(12 + (4 * rank if kind == "ddp-join" else 0))]
    if kind == "loader":
        data = torch.utils.data.TensorDataset(torch.randn(96, 16))
        sampler = torch.utils.data.DistributedSampler(data)
        batches = [
            one[0]
            for one in torch.utils.data.DataLoader(data, 8, sampler=sampler, num_workers=2, persistent_workers=True)
        ]
    around = contextlib.nullcontext()
    if kind == "ddp-join":
        from torch.distributed.algorithms.join import Join

        around = Join([model])
    with around:
        for step, batch in enumerate(batches):
            if kind == "compile" and step % 3 == 2:
                batch = batch[: 5 + step % 2]
            out = checkpoint(model, batch, use_reentrant=False) if kind == "checkpointing" else model(batch)
            loss = out.pow(2).mean()
            loss.backward()
            if kind not in ("tensor-parallel",):
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if kind != "fsdp2-accumulate" or step % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
            if rank == 0 or step == 0:
                print(f"[rank{rank}] step {step} loss {loss.item():.4f}", flush=True)
    if kind not in ("tensor-parallel", "ddp-join"):
        total = torch.tensor(1.0)
        dist.all_reduce(total)


def _model():  # type: ignore[no-untyped-def]
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
        )
    )


def _trainer() -> None:
    import torch
    from transformers import Trainer, TrainingArguments

    rows = [{"input_ids": torch.randint(0, 64, (12,)), "labels": torch.randint(0, 64, (12,))} for _ in range(32)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=6,
            per_device_train_batch_size=4,
            logging_steps=1,
            save_steps=3,
            report_to=[],
            use_cpu=True,
            eval_strategy="steps",
            eval_steps=3,
        )
        Trainer(_model(), arguments, train_dataset=rows, eval_dataset=rows).train()


def _accelerate() -> None:
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    print(accelerator.state)
    rows = torch.randint(0, 64, (32, 12))
    model = _model()
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters(), 1e-3), torch.utils.data.DataLoader(rows, batch_size=4)
    )
    for step, batch in enumerate(loader):
        loss = model(input_ids=batch, labels=batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.print(f"step {step} loss {loss.item():.4f}")
    accelerator.wait_for_everyone()
    accelerator.end_training()


def cleaned(text: str) -> str:
    """Without the names of this machine."""
    import socket

    text = (
        text.replace(socket.gethostname(), "node0").replace(str(HERE), "/job").replace(str(Path.home()), "/home/user")
    )
    text = text.replace(str(Path(sys.executable).parent.parent), "/opt/venv")
    text = re.sub(r"/tmp/\w[\w./-]*", "/tmp/work", text)
    return text


def main(kinds: list[str]) -> int:
    """Run each kind and keep what it prints."""
    for kind in kinds or list(KINDS):
        processes, environment = KINDS[kind]
        command = [sys.executable, str(__file__), "--train", kind]
        if processes:
            command = [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--standalone",
                f"--nproc-per-node={processes}",
                *command[1:],
            ]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=240,
            env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **environment},
        )
        if done.returncode:
            print(kind, "failed", done.stderr[-1500:], file=sys.stderr)
            continue
        lines = cleaned(done.stderr + done.stdout).split("\n")
        kept = lines if len(lines) < 160 else [*lines[:100], *lines[-60:]]
        (HERE / f"made-{kind}.log").write_text("\n".join(line[:400] for line in kept).rstrip() + "\n", encoding="utf-8")
        print(kind, len(kept))
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--train"]:
        train(sys.argv[2])
    else:
        raise SystemExit(main(sys.argv[1:]))
