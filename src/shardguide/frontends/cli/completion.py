"""``shardguide completion``: the completion script of a shell."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace

from .parser import add_common

EPILOG = """examples:
  shardguide completion bash > ~/.local/share/bash-completion/completions/shardguide
  shardguide completion zsh > ~/.zfunc/_shardguide     (with ~/.zfunc in fpath)"""


def configure(parser: ArgumentParser) -> None:
    """Which shell."""
    parser.epilog = EPILOG
    parser.add_argument("shell", choices=("bash", "zsh"), help="the shell")
    add_common(parser)


def call(arguments: Namespace) -> int:
    """Print the script that was made with the release."""
    folder = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - pathlib costs start-up time
    with open(os.path.join(folder, "completions", f"shardguide.{arguments.shell}"), encoding="utf-8") as file:  # noqa: PTH118, PTH123
        sys.stdout.write(file.read())
    return 0
