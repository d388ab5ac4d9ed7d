"""``shardguide diagnose``."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace

from shardguide.guidance.hints import TYPE_CHECKING, Any

from . import desk, engines, stated
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
    parser.add_argument("--markdown", action="store_true", help="a report for a bug tracker (the same as --format md)")
    parser.add_argument(
        "--anonymise", action="store_true", help="replace host and user names, addresses and home folders"
    )
    parser.add_argument("--executor", metavar="SPEC", default="auto", help=f"who reads the files: {engines.SPECS}")
    parser.add_argument("--show", metavar="ID", help="print one snippet only")
    add_common(parser)


def load() -> None:
    """Load what ``call`` needs."""
    import ahocorasick_rs

    import shardguide.frontends.conduct
    import shardguide.readers.logs.scan
    import shardguide.workflows.diagnose
    import shardguide.workflows.diagnose.reading

    _ = ahocorasick_rs, shardguide.workflows.diagnose


def prepare(arguments: Namespace) -> None:
    """Before the guard: the processes of ``--executor``, and what URLs need."""
    from shardguide.readers.remote import scheme

    if arguments.markdown:
        arguments.format = "md"
    arguments.schemes = sorted({found for path in arguments.paths if "://" in path and (found := scheme(path))})
    if arguments.executor.partition(":")[0] in ("dask", "ray"):  # whose workers may have another working folder
        arguments.paths = [path if path == "-" or scheme(path) else os.path.abspath(path) for path in arguments.paths]  # noqa: PTH100
    arguments.engine = engines.start(arguments.executor, arguments.paths, arguments.schemes)
    arguments.children = []
    if arguments.engine is not None:
        from . import workers

        arguments.children = workers.running()
    if arguments.schemes:
        from shardguide.readers import remote

        arguments.packages = remote.load(arguments.schemes)


def call(arguments: Namespace) -> int:
    """Diagnose and show; status 1 where nothing was diagnosed."""
    try:
        return _call(arguments)
    finally:
        if arguments.engine is not None:
            arguments.engine.shutdown(cancel_futures=True)


def _call(arguments: Namespace) -> int:
    from shardguide import guard
    from shardguide.frontends import conduct
    from shardguide.workflows.diagnose import DiagnoseRequest, diagnose

    if arguments.engine is not None:
        guard.permit("results")
        guard.own(arguments.children)
    if arguments.schemes:
        guard.install(packages=arguments.packages)
        guard.permit("remote")

    def make(remembered: dict[str, Any]) -> Guidance:
        request = DiagnoseRequest(
            tuple(arguments.paths),
            arguments.question,
            tuple(arguments.code),
            torch=arguments.torch,
            remembered=remembered,
            site_packages=arguments.site_packages,
            anonymise=arguments.anonymise,
        )
        return diagnose(request, arguments.engine)

    with desk.notebook(arguments) as notebook:
        record = conduct.conduct(make, notebook)
    if arguments.format == "md" and not arguments.json and not arguments.show:
        from shardguide.frontends.render.diagnose_report import report

        from . import output

        output.page(report(record), "md")
    else:
        stated.show(record, arguments)
    return 0 if record["outcome"] == "diagnosed" else 1
