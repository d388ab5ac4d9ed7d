"""No secret that stands in a log comes out again, in no form of output; names of hosts and people only where that is wanted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardguide.knowledge import diagnosis_store
from shardguide.workflows.diagnose import DiagnoseRequest, diagnose
from shardguide.workflows.diagnose.names import Names
from shardguide.workflows.diagnose.privacy import MASK, mask

# (how it stands in a log, what must not come out). Made up, in the form that the issuer documents; joined so that no scanner of
# repositories takes them for real ones.
B40 = "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"
LONG = "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
PLANTED = [
    (f"token is hf_{LONG[:34]} for the hub", LONG[:34]),
    (f"cloning with ghp_{LONG} failed", LONG),
    (f"github_pat_{LONG[:22]}_{LONG}", LONG),
    (f"glpat-{LONG[:20]}", LONG[:20]),
    ("key id AKIA" + "IOSFODNN7EXAMPLE used", "IOSFODNN7EXAMPLE"),
    ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI"),
    ("export AWS_SECRET_ACCESS_KEY='wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY'", "wJalrXUtnFEMI"),
    ("AWS_SESSION_TOKEN=FwoGZXIvYXdzEBYaDH+/abc==", "FwoGZXIvYXdz"),
    ("eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N", "dozjgNryP4J3jVm"),
    ("Authorization: Bearer s3cr3t.value-of_this", "s3cr3t"),
    ("headers={'Authorization': 'Basic dXNlcjpwYXNzd29yZA=='}", "dXNlcjpwYXNzd29yZA"),
    ("got Bearer s3cr3tvalue123 back", "s3cr3tvalue123"),
    (f"WANDB_API_KEY={B40}", B40),
    (f"wandb: Appending key for api.wandb.ai to your netrc file: key {B40}", B40),
    (f'wandb.login(key="{B40}")', B40),
    ("https://bob:hunter2@pypi.example.com/simple", "hunter2"),
    ("s3://AKID:hunter2secret@bucket/logs", "hunter2secret"),
    (f"git clone https://{LONG}@github.com/x/y", LONG),
    ("postgres://trainer:p%40ss!word@db:5432/mlflow", "p%40ss!word"),
    ("https://x.s3.amazonaws.com/a?X-Amz-Credential=AKIDX%2F2026&X-Amz-Signature=fe5f80f77d5fa3beca038a248ff027", "fe5f80f77d5fa3"),
    ("https://acc.blob.core.windows.net/c?sv=2024&sig=Zm9vYmFyYmF6%3D", "Zm9vYmFyYmF6"),
    ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=Zm9vYmFyYmF6cXV4==;EndpointSuffix=x", "Zm9vYmFyYmF6cXV4"),
    ("MLFLOW_TRACKING_PASSWORD: hunter2hunter2", "hunter2hunter2"),
    ('{"password": "correct horse battery"}', "correct horse battery"),
    ("{'HF_TOKEN': 'plainvalue99', 'RANK': '3'}", "plainvalue99"),
    ("DB_PASSWD=hunter2 RANK=3", "hunter2"),
    ("--api-key abcdef123456 --lr 1e-4", "abcdef123456"),
    ("--hf_token=abcdef123456 --lr 1e-4", "abcdef123456"),
    ("client_secret: abcd-efgh-ijkl", "abcd-efgh-ijkl"),
    ("AIza" + "SyA1234567890abcdefghijklmnopqrstuv", "SyA1234567890abc"),
    ("xoxb-" + "123456789012-abcdefghijkl", "abcdefghijkl"),
    ("https://hooks.slack.com/services/" + "T0000/B0000/XXXXyyyyZZZZ", "XXXXyyyyZZZZ"),
    ("sk-proj-" + LONG, LONG),
    ("sk-ant-api03-" + LONG, LONG),
    ("nvapi-" + LONG, LONG),
    ("machine api.wandb.ai login user password hunter2hunter2", "hunter2hunter2"),
    ("token=a1b2c3d4e5f6a7b8c9d0", "a1b2c3d4e5f6a7b8"),
    ("-----BEGIN RSA PRIVATE KEY-----MIIEowIBAAKCAQEA7x", "MIIEowIBAAKCAQEA7x"),
]  # fmt: skip
# What looks a little like it and is needed to understand a log.
HARMLESS = [
    "tokens/s 9600 loss 1.86 pad_token=<pad> eos_token_id=2",
    "tokenizer: LlamaTokenizerFast, max_tokens=4096, num_tokens: 123456",
    "KeyError: 'model.layers.0.weight'",
    'Missing key(s) in state_dict: "lm_head.weight", "norm.weight".',
    "commit 0a1b2c3d4e5f60718293a4b5c6d7e8f901234567 of main",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 15.66 GiB.",
    "basic information about the authorization of ranks",
    'File "/workspace/secret_project/train.py", line 12, in <module>',
    "wait timeout after 300000ms, keys: /default_pg/0//cpu//0/rank_1",
    "tcp://node-3:29500 MASTER_ADDR=node-3",
    "torch.Size([4096, 4096]) sk-learn 1.4",
    "attention_key=query_key_value",
]


@pytest.mark.parametrize(("line", "secret"), PLANTED, ids=[str(at) for at in range(len(PLANTED))])
def test_masked(line: str, secret: str) -> None:
    assert secret in line
    out = mask(f"[rank3]: {line} and so on")
    assert secret not in out
    assert MASK in out and out.startswith("[rank3]: ")
    assert mask(out) == out


@pytest.mark.parametrize("line", HARMLESS)
def test_harmless_stays(line: str) -> None:
    assert mask(line) == line


def test_own_words_are_not_masked() -> None:
    for name in diagnosis_store.ids():
        one = diagnosis_store.get(name)
        for text in (one.title, one.cause, one.tell, one.fix, one.check, one.next):
            assert mask(text) == text, name


def test_cut_secret() -> None:
    line = "x" * 990 + " hf_AbCd"
    assert "AbCd" not in mask(line)


def log(path: Path) -> list[str]:
    """A log in which every secret stands on a line that becomes evidence; returns the secrets."""
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.00 GiB is free."
    lines = []
    for rank, (line, _) in enumerate(PLANTED):
        lines.append(f"[rank{rank}]: Traceback (most recent call last):")
        lines.append(f'[rank{rank}]:   File "/home/alice/train.py", line {rank + 1}, in <module>')
        lines.append(f"[rank{rank}]:     main()")
        lines.append(f"[rank{rank}]: {oom} {line}")
        lines.append(f"[rank{rank}]: RuntimeError: NCCL error ncclSystemError: {line}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [secret for _, secret in PLANTED]


def run(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "shardguide",
        "diagnose",
        *options,
        "--torch",
        "2.13",
        "--no-input",
        "--notebook",
        str(tmp_path / "n.db"),
    ]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=dict(os.environ))


@pytest.mark.parametrize("form", ["text", "verbose", "json", "markdown"])
def test_no_secret_in_any_output(form: str, tmp_path: Path) -> None:
    secrets = log(tmp_path / "train.log")
    done = run(
        tmp_path,
        "train.log",
        *({"text": (), "verbose": ("--verbose",), "json": ("--json",), "markdown": ("--markdown",)}[form]),
    )
    assert done.returncode == 0, done.stderr
    assert MASK in done.stdout.replace("\\*", "*")
    for secret in secrets:
        assert secret not in done.stdout and secret not in done.stderr
    # The notebook keeps what was answered.
    kept = (tmp_path / "n.db").read_bytes()
    assert not [secret for secret in secrets if secret.encode() in kept]


def test_every_evidence_line_of_every_secret(tmp_path: Path) -> None:
    """One log for each, so that each is evidence."""
    for at, (line, secret) in enumerate(PLANTED):
        path = tmp_path / f"{at}.log"
        path.write_text(
            f'[rank0]: Traceback (most recent call last):\n[rank0]:   File "t.py", line 1, in f\n[rank0]: ValueError: {line}\n'
        )
        text = json.dumps(diagnose(DiagnoseRequest((str(path),), torch="2.13")).extra)
        assert secret not in text and "ValueError" in text


NAMED = """\
node-7.prod.example.internal:1234:5678 [0] NCCL INFO Bootstrap : Using eth0:10.1.2.3<0>
[rank1]:[W1129 12:00:00.1 socket.cpp:759] [c10d] The client socket has failed to connect to [node-7.prod.example.internal]:29500 (errno: 111 - Connection refused).
[rank3]: Traceback (most recent call last):
[rank3]:   File "/home/alice/train.py", line 12, in <module>
[rank3]:     main()
[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB on node-7 by alice from 10.1.2.3 and fe80::1ff:fe23:4567:890a. GPU 0 has a total capacity of 79.11 GiB of which 1.00 GiB is free.
"""


def test_names_stay_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(NAMED)
    out = run(tmp_path, "a.log", "--json").stdout
    assert "/home/alice" in out and "10.1.2.3" in out


@pytest.mark.parametrize("form", [(), ("--json",), ("--markdown",), ("--verbose",)])
def test_anonymised(form: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(NAMED)
    done = run(tmp_path, "a.log", "--anonymise", *form)
    assert done.returncode == 0, done.stderr
    for name in ("node-7", "alice", "10.1.2.3", "fe80", "example.internal"):
        assert name not in done.stdout
    assert "user-1" in done.stdout and "host-1" in done.stdout and "ip-1" in done.stdout and "ip-2" in done.stdout


def test_names_are_consistent() -> None:
    names = Names()
    names.collect("host : gpu-a1\nMASTER_ADDR=gpu-b2 /home/bob/x USER=bob")
    out = names.replaced("gpu-a1 gpu-b2 gpu-a1 /home/bob bob 10.0.0.1 10.0.0.2 10.0.0.1 127.0.0.1 2.13.0.1234 12:30:45")
    assert out == "host-1 host-2 host-1 /home/user-1 user-1 ip-1 ip-2 ip-1 127.0.0.1 2.13.0.1234 12:30:45"
