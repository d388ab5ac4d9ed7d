"""Which operation each backend of torch.distributed has for which kind of tensor, release by release.

``capabilities.json`` is the table of PyTorch's documentation with its eight columns, as it was for each release, with the page and a
digest of each row's text; and beside it what was found by running the operations.
"""

from __future__ import annotations

from .table import BACKENDS, OPERATIONS, Cell, Table, cell, operation, table

__all__ = ["BACKENDS", "OPERATIONS", "Cell", "Table", "cell", "operation", "table"]
