"""``python -m shardguide``."""

from shardguide.frontends.cli.main import run

run()
