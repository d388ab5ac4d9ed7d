"""The public functions: one for each workflow, each returning a ``Guidance``. ``import shardguide`` offers them.

They read what is handed over and nothing else: no notebook, no questions, nothing written. What is missing comes back in
``Guidance.questions``; ``to_dict`` gives the JSON object of the command line. All raise ``UnusableInput``, with one sentence, for
input that cannot be used. ``site_packages`` names the PyTorch to read; without it the usual places are searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shardguide.guidance.hints import Any
from shardguide.guidance.record import Guidance
from shardguide.workflows import catalogue

Value = str | int | None
Paths = str | Iterable[str]


def _run(name: str, site_packages: str | None, **arguments: Any) -> Guidance:
    given = {key: value for key, value in arguments.items() if value not in (None, "", (), [], False)}
    return catalogue.run(name, given, {}, site_packages)


def _many(paths: Paths) -> list[str]:
    return [paths] if isinstance(paths, str) else list(paths)


def plan(
    model: str | None = None,
    *,
    gpus: Value = None,
    nodes: Value = None,
    gpu: str | None = None,
    gpu_memory: str | None = None,
    device: str | None = None,
    host_memory: str | None = None,
    intra: str | None = None,
    inter: str | None = None,
    optimizer: str | None = None,
    param_dtype: str | None = None,
    strategy: str | None = None,
    shard_size: Value = None,
    tp: Value = None,
    tp_plan: str | None = None,
    offload: str | None = None,
    weights: str | None = None,
    implementation: str | None = None,
    files: Paths = (),
    measured: Paths = (),
    current: str | None = None,
    also: Iterable[str] = (),
    torch: str | None = None,
    site_packages: str | None = None,
) -> Guidance:
    """An FSDP configuration for a model and a cluster. The arguments are the options of ``shardguide plan``.

    >>> answer = plan("7b", gpus=8, nodes=1, gpu="H100 SXM 80GB", intra="nvlink", optimizer="adamw",
    ...               param_dtype="float32", torch="2.13")
    >>> answer.status, answer.decisions[0].id
    ('complete', 'sharding')
    >>> [question.id for question in plan("7b", torch="2.13").questions][:2]
    ['gpus', 'nodes']
    """
    return _run("plan", site_packages, **_situation(locals()), also=list(also))


def tune(
    model: str | None = None,
    *,
    now: Iterable[str] = (),
    gpus: Value = None,
    nodes: Value = None,
    gpu: str | None = None,
    gpu_memory: str | None = None,
    device: str | None = None,
    host_memory: str | None = None,
    intra: str | None = None,
    inter: str | None = None,
    optimizer: str | None = None,
    param_dtype: str | None = None,
    strategy: str | None = None,
    shard_size: Value = None,
    tp: Value = None,
    tp_plan: str | None = None,
    offload: str | None = None,
    weights: str | None = None,
    implementation: str | None = None,
    files: Paths = (),
    measured: Paths = (),
    current: str | None = None,
    torch: str | None = None,
    site_packages: str | None = None,
) -> Guidance:
    """Mixed precision and CPU offload beside what runs now: ``now`` in words, or ``current``, a file.

    >>> answer = tune("7b", now=["api=fsdp2", "param=fp16"], gpus=8, nodes=1, gpu="A100 80GB", intra="nvlink",
    ...               optimizer="adamw", param_dtype="float32", torch="2.13")
    >>> answer.workflow, answer.status
    ('tune', 'complete')
    """
    return _run("tune", site_packages, **_situation(locals()), now=list(now))


def _situation(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that ``plan`` and ``tune`` share, by the names that the workflow takes."""
    out = {
        name: value
        for name, value in given.items()
        if name not in ("files", "measured", "also", "now", "site_packages")
    }
    return {**out, "from": _many(given["files"]), "measured": _many(given["measured"])}


def backend(
    *,
    device: str | None = None,
    inter: str | None = None,
    os: str | None = None,
    ipoib: str | None = None,
    offload: str | None = None,
    needs: str | None = None,
    torch: str | None = None,
    site_packages: str | None = None,
) -> Guidance:
    """NCCL, XCCL, Gloo or MPI for a device, a network and an operating system.

    >>> backend(device="cpu", inter="ethernet", os="linux", torch="2.13").decisions[0].choice
    'gloo'
    """
    return _run(
        "backend",
        site_packages,
        device=device,
        inter=inter,
        os=os,
        ipoib=ipoib,
        offload=offload,
        needs=needs,
        torch=torch,
    )


def init(
    *,
    method: str | None = None,
    backend: str | None = None,
    launcher: str | None = None,
    world_size: Value = None,
    rank: Value = None,
    address: str | None = None,
    path: str | None = None,
    os: str | None = None,
    call: str | None = None,
    torch: str | None = None,
    site_packages: str | None = None,
) -> Guidance:
    """The ``init_process_group`` call with its environment and its end; with ``call``, a check of the user's own.

    >>> answer = init(method="env", backend="nccl", launcher="torchrun", torch="2.13")
    >>> "destroy_process_group" in answer.snippets[0].code
    True
    """
    return _run(
        "init", site_packages, method=method, backend=backend, launcher=launcher, world_size=world_size,
        rank=None if rank is None else str(rank), address=address, path=path, os=os, call=call, torch=torch,
    )  # fmt: skip


def join(
    paths: Paths = (),
    *,
    parts: str | None = None,
    uneven: str | None = None,
    on_exhausted: str | None = None,
    collectives: str | None = None,
    skew: str | None = None,
    groups: str | None = None,
    torch: str | None = None,
    site_packages: str | None = None,
) -> Guidance:
    """Uneven inputs; ``parts`` is what communicates in the loop (``--with`` of the command line): ``ddp,zero``, ``fsdp``, ``own``.

    ``paths``: code whose Joinables and hooks are compared, collective by collective; the verdicts are in ``extra["join_check"]``.

    >>> join(parts="fsdp", uneven="yes", on_exhausted="stop", torch="2.13").decisions[0].id
    'use'
    """
    return _run(
        "join", site_packages, paths=_many(paths), **{"with": parts}, uneven=uneven, on_exhausted=on_exhausted,
        collectives=collectives, skew=skew, groups=groups, torch=torch,
    )  # fmt: skip


def fsdp2(
    *, goal: str | None = None, using: str | None = None, torch: str | None = None, site_packages: str | None = None
) -> Guidance:
    """FSDP2 or FSDP1, for a release and goals.

    >>> fsdp2(goal="memory", torch="2.2").decisions[0].id
    'adopt'
    """
    return _run("fsdp2", site_packages, goal=goal, using=using, torch=torch)


def explain(
    topic: str = "",
    *,
    architecture: str | None = None,
    form: str | None = None,
    full_script: bool = False,
    torch: str | None = None,
    site_packages: str | None = None,
) -> Guidance:
    """A subject with its sources, and code for it.

    >>> explain("gradient-clipping", torch="2.13").snippets[0].language
    'python'
    """
    return _run(
        "explain",
        site_packages,
        topic=topic,
        architecture=architecture,
        form=form,
        full_script=full_script,
        torch=torch,
    )


def ask(question: str, *, torch: str | None = None, site_packages: str | None = None) -> Guidance:
    """A question in words, answered from the sources or honestly not known.

    >>> ask("how do I clip gradients with FSDP2?", torch="2.13").workflow
    'ask'
    """
    return _run("ask", site_packages, question=question, torch=torch)


def diagnose(
    paths: Paths = (),
    *,
    text: str | None = None,
    question: str | None = None,
    code: Paths = (),
    anonymise: bool = False,
    torch: str | None = None,
    site_packages: str | None = None,
) -> Guidance:
    """The cause and the fix of a failure: from files, from pasted text, or from what the user says happens.

    >>> answer = diagnose(text="RuntimeError: trying to initialize the default process group twice!", torch="2.13")
    >>> answer.extra["outcome"]
    'diagnosed'
    """
    return _run(
        "diagnose",
        site_packages,
        paths=_many(paths),
        text=text,
        question=question,
        code=_many(code),
        anonymise=anonymise,
        torch=torch,
    )


def review(
    paths: Paths = (),
    *,
    text: str | None = None,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    torch: str | None = None,
    site_packages: str | None = None,
) -> Guidance:
    r"""What in training code hangs, fails or goes wrong; the code is read, never run. Findings are in ``extra["findings"]``.

    >>> code = "import torch\nfrom torch.distributed.fsdp import fully_shard\nfully_shard(torch.nn.ModuleList())\n"
    >>> [finding["rule"] for finding in review(text=code, torch="2.13").extra["findings"]]
    ['FSD404']
    """
    return _run(
        "review", site_packages, paths=_many(paths), text=text, select=list(select), ignore=list(ignore), torch=torch
    )


def migrate(paths: Paths, *, torch: str | None = None, site_packages: str | None = None) -> Guidance:
    r"""FSDP1 code as FSDP2 code: ``extra["diff"]``, and ``extra["todo"]`` for what a person must decide. Nothing is written.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "train.py")
    ...     _ = open(path, "w").write("from torch.distributed.fsdp import FullyShardedDataParallel\n\n\n"
    ...                               "def wrap(model):\n    return FullyShardedDataParallel(model)\n")
    ...     answer = migrate(path, torch="2.13")
    >>> "fully_shard" in answer.extra["diff"]
    True
    """
    return _run("migrate", site_packages, paths=_many(paths), torch=torch)
