"""The options that state a model, a cluster and a run; ``plan`` and ``tune`` share them."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.workflows import fields
from shardguide.workflows.request import PlanRequest

from . import asking


def add_situation(parser: ArgumentParser) -> None:
    """One option for every field, and the files that can be handed over."""
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="config.json or its folder, safetensors files or their index, a shape manifest, or a size such as 7b",
    )
    for field in fields.PLAN:
        if field.help:
            parser.add_argument(f"--{field.name.replace('_', '-')}", metavar=field.metavar or "X", help=field.help)
    parser.add_argument(
        "--from",
        dest="files",
        action="extend",
        nargs="+",
        default=[],
        metavar="FILE",
        help="collect_env, nvidia-smi, topo -m or CSV output, accelerate YAML",
    )
    parser.add_argument(
        "--measured",
        action="extend",
        nargs="+",
        default=[],
        metavar="FILE",
        help="memory_stats JSON, nccl-tests output, step times",
    )
    parser.add_argument("--current", metavar="FILE", help="what you run now: FSDP code or accelerate YAML")


def given(arguments: Namespace) -> dict[str, Any]:
    """What the command line states, by field name."""
    names = {field.name for field in fields.PLAN}
    return {name: value for name, value in vars(arguments).items() if name in names and value is not None}


def request(arguments: Namespace, stated: dict[str, Any], remembered: dict[str, Any]) -> PlanRequest:
    """What the workflow gets."""
    return PlanRequest(
        given=stated,
        remembered=remembered,
        files=tuple(arguments.files),
        measured=tuple(arguments.measured),
        current=arguments.current or "",
        site_packages=arguments.site_packages,
    )


def ask_and_answer(
    arguments: Namespace,
    stated: dict[str, Any],
    work: Callable[[], dict[str, Any]],
    askable: tuple[fields.Field, ...] = fields.PLAN,
) -> dict[str, Any]:
    """The record; on a terminal after each open question was put once (an answer may close others or open new ones)."""
    record = work()
    if not asking.may_ask(arguments):
        return record
    asked: set[str] = set()
    known = {field.name for field in askable} | {fields.TORCH.name}
    while True:
        open_ = [
            question for question in record["questions"] if question["id"] not in asked and question["id"] in known
        ]
        if not open_:
            return record
        question = open_[0]
        asked.add(question["id"])
        text = asking.ask(question)
        if not text:
            continue
        before = dict(stated)
        stated[question["id"]] = text
        try:
            record = work()
        except UnusableInput as error:
            print(f"  {error}", file=sys.stderr)
            asked.discard(question["id"])
            stated.clear()
            stated.update(before)
