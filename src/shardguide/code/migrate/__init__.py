"""FSDP1 code, and FSDP2 code of older releases, rewritten for ``fully_shard``: edits on the source itself, never a run of it."""
