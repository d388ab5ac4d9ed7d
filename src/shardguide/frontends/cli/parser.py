"""argparse with our manners: an unusable command line is one sentence and exit status 2."""

from __future__ import annotations

import argparse

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any, NoReturn


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Help of a fixed width: argparse makes a formatter for every option, and asking for the terminal's size costs each time."""
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=30, width=110)


class Parser(argparse.ArgumentParser):
    """A parser that raises instead of exiting, so that every bad input ends the same way."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("formatter_class", _formatter)
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing and exiting."""
        raise UnusableInput(f"{message}; {self.prog} --help shows the options.")


def add_common(parser: argparse.ArgumentParser) -> None:
    """The options that every command has."""
    group = parser.add_argument_group("everywhere")
    group.add_argument("--json", action="store_true", help="print the Guidance as JSON")
    group.add_argument("--format", choices=["text", "md", "json"], default="text", help="text (default), md or json")
    group.add_argument("--verbose", action="store_true", help="full detail")
    group.add_argument("--torch", metavar="X", help="PyTorch release to answer for, e.g. 2.13")
    group.add_argument("--site-packages", metavar="PATH", help="where the PyTorch to read lies")
    group.add_argument("--no-input", action="store_true", help="never ask; missing answers end with status 3")
    group.add_argument("--notebook", metavar="PATH", help="notebook file (default: the state folder)")


def wants_json(arguments: argparse.Namespace) -> bool:
    """Whether machine-readable output was asked for."""
    return bool(arguments.json or arguments.format == "json")
