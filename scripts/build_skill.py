"""Writes the packaged skill and the plugin files around it: ``skills/shardguide``, ``.claude-plugin`` and ``.mcp.json``.

usage: build_skill.py [--check]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from shardguide.frontends.cli.main import VERSION
from shardguide.frontends.skill import content

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = "https://github.com/shardguide/shardguide"


def wanted() -> dict[str, str]:
    """Every file by its path in the repository."""
    about = "FSDP guidance for PyTorch that is checked against the user's release, with sources."
    plugin = {
        "name": content.NAME,
        "version": VERSION,
        "description": about,
        "license": "MIT",
        "author": {"name": "The Shardguide authors"},
    }
    market = {
        "name": content.NAME,
        "description": about,
        "owner": {"name": "The Shardguide authors"},
        "plugins": [{"name": content.NAME, "source": "./", "description": about, "version": VERSION}],
    }
    server = {"mcpServers": {content.NAME: {"command": "shardguide", "args": ["mcp"]}}}
    out = {f"skills/{content.NAME}/{name}": text for name, text in content.files().items()}
    out[".claude-plugin/plugin.json"] = json.dumps(plugin, indent=2) + "\n"
    out[".claude-plugin/marketplace.json"] = json.dumps(market, indent=2) + "\n"
    out[".mcp.json"] = json.dumps(server, indent=2) + "\n"
    return out


def main() -> int:
    files = wanted()
    have = {str(path.relative_to(ROOT)) for path in (ROOT / "skills").rglob("*") if path.is_file()}
    stray = sorted(have - set(files))
    stale = [
        name
        for name, text in files.items()
        if not (ROOT / name).exists() or (ROOT / name).read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv:
        for name in (*stale, *stray):
            print(f"{name} differs from the knowledge: run scripts/build_skill.py", file=sys.stderr)
        return 1 if stale or stray else 0
    for name in stray:
        (ROOT / name).unlink()
    for name in stale:
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(files[name], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
