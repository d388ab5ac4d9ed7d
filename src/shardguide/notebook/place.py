# ruff: noqa: PTH100, PTH111, PTH117, PTH118
# (pathlib costs more at start-up than reading the notebook)
"""Where the notebook lies, and under which key a project's answers are kept."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from shardguide.guidance.hints import NamedTuple

FILE = "notebook.db"


class Place(NamedTuple):
    """A notebook's path, and whether the user named it (then an unusable one is an error, else a remark)."""

    path: str  # "" when there is no home folder to put it in
    asked: bool


def find_place(
    option: str | None = None, environ: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> Place:
    """The notebook of this call: ``--notebook PATH``, else ``$SHARDGUIDE_HOME``, else the platform's state folder.

    Linux: ``$XDG_STATE_HOME/shardguide``, by default ``~/.local/state/shardguide`` (XDG Base Directory Specification;
    a relative value is ignored, as it asks). macOS: ``~/Library/Application Support/shardguide``.
    """
    if option:
        return Place(os.path.abspath(os.path.expanduser(option)), True)
    home = environ.get("SHARDGUIDE_HOME", "")
    if home:
        return Place(os.path.join(os.path.abspath(os.path.expanduser(home)), FILE), True)
    if platform == "darwin":
        state = os.path.expanduser("~/Library/Application Support")
    else:
        state = environ.get("XDG_STATE_HOME", "")
        if not os.path.isabs(state):
            state = os.path.expanduser("~/.local/state")
    if not os.path.isabs(state):  # neither $HOME nor an entry in the password database
        return Place("", False)
    return Place(os.path.join(state, "shardguide", FILE), False)


def project_key(folder: str) -> str:
    """The key of a project folder: its real path, bytes that are no UTF-8 as escapes. "" is the global default."""
    return os.fsencode(os.path.realpath(folder)).decode("utf-8", "backslashreplace")
