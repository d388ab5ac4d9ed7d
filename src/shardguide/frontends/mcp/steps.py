"""What leads on from a result, as calls that a client can make as they stand: the workflows know more commands than there are tools."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.workflows import catalogue

from .tools import Tool

LONGEST = 4_000  # characters of an argument that is handed back; what was pasted, the client has
_SHORT = 300  # characters of an argument that is only shown
_PLACEHOLDERS = frozenset({"FILE", "NAME", "CONFIG", "PATH"})


def named(task: str, arguments: dict[str, Any], tools: dict[str, Tool]) -> tuple[str, dict[str, Any]]:
    """The tool of this server that a workflow stands behind, and its own arguments."""
    name, given = _as_tool(task, {one: value for one, value in arguments.items() if value not in (None, "", [])})
    return name, conformed(tools[name], given)


def asks_nobody(record: dict[str, Any]) -> dict[str, Any]:
    """The record for a client that cannot ask its user: nothing leads to apply, which would refuse; the command is the user's."""
    if all(step["tool"] != "apply" for step in record.get("next", ())):
        return record
    left = f"what is proposed is not written, since this client cannot ask its user; they can run: shardguide apply {record['id']}"
    return {
        **record,
        "next": [step for step in record["next"] if step["tool"] != "apply"],
        "not_done": [*record.get("not_done", ()), left],
    }


def with_steps(record: dict[str, Any], task: str, arguments: dict[str, Any], tools: dict[str, Tool]) -> dict[str, Any]:
    """The record with ``next`` made of tools and their own arguments; what needs something first is said in ``not_done``.

    The release of the call goes along, as do the files of code that is to be read again. What can be written leads to apply.
    """
    steps: list[dict[str, Any]] = []
    later: list[str] = []
    again, said = _as_tool(task, {name: value for name, value in arguments.items() if value not in (None, "", [])})
    said = conformed(tools[again], said)
    for step in record.get("next", ()):
        name, given = _as_tool(str(step["tool"]), dict(step["arguments"]))
        if step["tool"] == "approve":
            continue  # not a tool: the user's word in a terminal; approval.asked has the question
        missing = [key for key, value in given.items() if isinstance(value, str) and value in _PLACEHOLDERS]
        if missing:
            later.append(f"{step['why']} ({name}, {', '.join(missing)})")
            continue
        tool = tools.get(name)
        if tool is None:
            continue
        if name == "review" and not given.get("paths") and task in ("review", "migrate"):
            given["paths"] = arguments.get("paths")
        if arguments.get("torch"):
            given.setdefault("torch", arguments["torch"])
        made = conformed(tool, given)
        same = (name, made) == (again, said) and not record.get("questions")
        if same or (name == "review" and task in ("review", "migrate")):
            later.append(f"{step['why']}: {name} with the same paths")  # called now it would say the same
        elif callable_(tool, made):
            steps.append({"tool": name, "arguments": made, "why": step["why"]})
    repeats = steps and steps[0]["tool"] == again and said.items() <= steps[0]["arguments"].items()
    if record.get("questions") and not repeats and callable_(tools[again], said):
        why = f"answer the questions and call {again} again"
        steps.insert(0, {"tool": again, "arguments": said, "why": why})
    if writes(record) and not arguments.get("text"):  # what was pasted is no file
        why = "write what is proposed; the user sees it and confirms it first"
        first = 0 if not record.get("questions") else len(steps)
        steps.insert(first, {"tool": "apply", "arguments": {"id": record["id"]}, "why": why})
    out = {**record, "next": steps}
    if later:
        out["not_done"] = [*record.get("not_done", ()), *later]
    return out


def writes(record: dict[str, Any]) -> bool:
    """Whether ``apply`` has something to write: a diff, safe fixes, the files of a complete plan."""
    if not record.get("id") or record.get("status") == "needs_answers":
        return False
    if record["workflow"] == "review":
        return any(one["edits"] for one in record.get("findings", ()))
    if record["workflow"] == "migrate":
        return bool(record.get("diff"))
    failed = any(check["result"] == "failed" for check in record.get("checks", ()))
    return record["workflow"] == "plan" and bool(record.get("snippets")) and not failed


def _as_tool(name: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The tool that does what a command does."""
    if name == "migrate":
        return "review", {**arguments, "migrate": True}
    if name == "ask":
        return "start", {"words" if key == "question" else key: value for key, value in arguments.items()}
    return name, arguments


def conformed(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments in the types that the tool's schema names, and words of closed lists as they stand there."""
    fields = {field.name: field for field in catalogue.TASKS[tool.task].fields()} if tool.task else {}
    out: dict[str, Any] = {}
    for name, value in arguments.items():
        schema = tool.properties.get(name, {})
        if value in (None, "", [], ()):
            continue
        if schema.get("type") == "array":
            out[name] = [str(one) for one in value] if isinstance(value, (list, tuple)) else [str(value)]
        elif isinstance(value, (list, tuple)):
            out[name] = ",".join(map(str, value))
        elif schema.get("type") in ("integer", "string") and name in fields and not isinstance(value, bool):
            typed = schema["type"] == "integer" or "enum" in schema
            try:
                out[name] = fields[name].parse(str(value)) if typed else str(value)
            except UnusableInput:
                out[name] = str(value)
        else:
            out[name] = value
    return out


def callable_(tool: Tool, arguments: dict[str, Any]) -> bool:
    """Whether the tool takes exactly these, and they are enough for it to answer or to ask."""
    if any(name not in tool.properties for name in arguments) or any(name not in arguments for name in tool.required):
        return False
    if any(isinstance(value, str) and len(value) > LONGEST for value in arguments.values()):
        return False
    if tool.name == "review":
        return bool(arguments.get("paths") or arguments.get("text"))
    if tool.name == "diagnose":
        return bool(arguments.get("paths") or arguments.get("text") or arguments.get("question"))
    return tool.name != "docs" or len(arguments["names"]) == (2 if arguments.get("action") == "changes" else 1)


def shortened(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments as they are shown: what was pasted stands there with its beginning only."""
    return {
        name: f"{value[:_SHORT]}… ({len(value):,} characters)"
        if isinstance(value, str) and len(value) > _SHORT + 40
        else value
        for name, value in arguments.items()
    }
