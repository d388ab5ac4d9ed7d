"""``python -m shardguide``."""

import sys

# -m puts the working folder first, and a user's json.py or random.py there must never be imported in place of Python's.
del sys.path[0]

from shardguide.frontends.cli.main import run  # noqa: E402

run()
