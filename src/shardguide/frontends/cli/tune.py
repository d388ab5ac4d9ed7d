"""``shardguide tune``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from shardguide.guidance.hints import TYPE_CHECKING, Any
from shardguide.workflows.request import NOW_KEYS

from . import desk, output
from .parser import add_common
from .situation import add_situation, ask_and_answer, given, request

if TYPE_CHECKING:
    from shardguide.guidance.record import Guidance

EPILOG = """what --now takes, for settings that no file says:
  api=fsdp2|fsdp1|ddp            strategy=full|grad_op|hybrid|none
  param=DTYPE reduce=DTYPE output=DTYPE   dtypes of the policy (bf16, fp16, fp32), or none; under DDP param is autocast's
  offload=yes|no|pinned|pageable scaler=yes|no

examples:
  shardguide tune config.json --gpus 8 --nodes 1 --gpu "A100 80GB" --intra nvlink --optimizer adamw \\
      --param-dtype float32 --current train.py
  shardguide tune config.json --now api=fsdp1 --now param=fp16 --now offload=yes --gpus 8 --gpu V100"""


def configure(parser: ArgumentParser) -> None:
    """The options of a plan, and what runs now."""
    parser.epilog = EPILOG
    add_situation(parser)
    parser.add_argument(
        "--now",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"a current setting, repeatable: {', '.join(NOW_KEYS)}; it wins over --current",
    )
    add_common(parser)


def load() -> None:
    """Load what ``call`` needs."""
    import shardguide.frontends.conduct
    import shardguide.workflows.tune

    _ = shardguide.workflows.tune


def call(arguments: Namespace) -> int:
    """Recommend dtypes and offload, beside what runs now."""
    from shardguide.frontends import conduct
    from shardguide.workflows.tune import TuneRequest, tune

    stated = given(arguments)
    with desk.notebook(arguments) as notebook:

        def make(remembered: dict[str, Any]) -> Guidance:
            return tune(TuneRequest(request(arguments, stated, remembered), tuple(arguments.now)))

        record = ask_and_answer(arguments, stated, lambda: conduct.conduct(make, notebook))
        return output.show(record, arguments)
