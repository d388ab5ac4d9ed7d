"""The notebook: answers by project, every guidance with its inputs, approvals, and the ledger of what was handled."""

from __future__ import annotations

from shardguide.notebook.book import Entry, Kept, Mark, Notebook, Remembered
from shardguide.notebook.place import Place, find_place, project_key

__all__ = ["Entry", "Kept", "Mark", "Notebook", "Place", "Remembered", "find_place", "project_key"]
