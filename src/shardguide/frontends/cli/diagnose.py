"""``shardguide diagnose``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from shardguide.guidance.hints import TYPE_CHECKING, Any

from . import desk, stated
from .parser import add_common

if TYPE_CHECKING:
    from shardguide.guidance.record import Guidance

EPILOG = """examples:
  shardguide diagnose train.log
  shardguide diagnose logs/ --code train.py
  shardguide diagnose logs/ --question "hangs after the first epoch"
  kubectl logs job/train | shardguide diagnose -

exit status: 0 diagnosed; 1 no failure, or none that is known; 2 unusable input"""


def configure(parser: ArgumentParser) -> None:
    """What is handed over."""
    parser.epilog = EPILOG
    parser.add_argument("paths", nargs="*", metavar="PATH", help="logs, dumps or folders of them; - is standard input")
    parser.add_argument("--question", metavar="TEXT", default="", help="what happens, in your words")
    parser.add_argument(
        "--code", nargs="+", metavar="FILE", action="extend", default=[], help="your scripts: the line that it is about"
    )
    parser.add_argument("--show", metavar="ID", help="print one snippet only")
    add_common(parser)


def load() -> None:
    """Load what ``call`` needs."""
    import ahocorasick_rs

    import shardguide.frontends.conduct
    import shardguide.readers.logs.scan
    import shardguide.workflows.diagnose

    _ = ahocorasick_rs, shardguide.workflows.diagnose


def call(arguments: Namespace) -> int:
    """Diagnose and show; status 1 where nothing was diagnosed."""
    from shardguide.frontends import conduct
    from shardguide.workflows.diagnose import DiagnoseRequest, diagnose

    def make(remembered: dict[str, Any]) -> Guidance:
        return diagnose(
            DiagnoseRequest(
                tuple(arguments.paths),
                arguments.question,
                tuple(arguments.code),
                torch=arguments.torch,
                remembered=remembered,
                site_packages=arguments.site_packages,
            )
        )

    with desk.notebook(arguments) as notebook:
        record = conduct.conduct(make, notebook)
    stated.show(record, arguments)
    return 0 if record["outcome"] == "diagnosed" else 1
