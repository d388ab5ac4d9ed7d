"""``python -m shardguide``."""

import os
import sys

# -m puts the working folder first, and a user's json.py or random.py there must never be imported in place of Python's.
if sys.path and sys.path[0] in ("", os.getcwd()):  # noqa: PTH109 - nothing else is imported before this
    del sys.path[0]

if __name__ == "__main__":  # a process that is spawned runs this file as well, under another name
    from shardguide.frontends.cli.main import run

    run()
