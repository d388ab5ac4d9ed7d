"""The few lines that a host's configuration needs to start the server.

Formats: Claude Code https://code.claude.com/docs/en/mcp, Codex https://developers.openai.com/codex/mcp, Cursor
https://cursor.com/docs/context/mcp, VS Code https://code.visualstudio.com/docs/copilot/customization/mcp-servers, Gemini CLI
https://google-gemini.github.io/gemini-cli/docs/tools/mcp-server.html.
"""

from __future__ import annotations

import json
import shlex
import sys

from shardguide.guidance.errors import UnusableInput

HOSTS = ("claude-code", "codex", "cursor", "vscode", "gemini")


def configuration(host: str) -> tuple[str, str]:
    """Where it goes, and what to paste. The path of this Python is written out, since hosts start with a nearly empty PATH.

    Raises UnusableInput for a host that is not known.
    """
    command, arguments = sys.executable, ["-m", "shardguide", "mcp"]
    server = {"command": command, "args": arguments}
    if host == "claude-code":
        return "run", f"claude mcp add shardguide -- {shlex.join([command, *arguments])}\n"
    if host == "codex":
        listed = ", ".join(json.dumps(one) for one in arguments)
        body = f"[mcp_servers.shardguide]\ncommand = {json.dumps(command)}\nargs = [{listed}]\n"
        return "~/.codex/config.toml", body
    if host == "cursor":
        return ".cursor/mcp.json, or ~/.cursor/mcp.json", _text({"mcpServers": {"shardguide": server}})
    if host == "vscode":
        return ".vscode/mcp.json", _text({"servers": {"shardguide": {"type": "stdio", **server}}})
    if host == "gemini":
        where = ".gemini/settings.json of the project, or ~/.gemini/settings.json"
        return where, _text({"mcpServers": {"shardguide": server}})
    raise UnusableInput(f"--print-config takes {', '.join(HOSTS)}, not {host[:40]!r}.")


def _text(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
