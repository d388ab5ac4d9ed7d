"""Opens the notebook that a command works with, and tells the guard that it may be written."""

from __future__ import annotations

from argparse import Namespace

from shardguide import guard
from shardguide.notebook import Notebook, find_place


def notebook(arguments: Namespace) -> Notebook:
    """The notebook of ``--notebook``, else of the state folder."""
    place = find_place(arguments.notebook)
    if place.path:
        guard.install(place.path)
    return Notebook(place)
