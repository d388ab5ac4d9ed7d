"""Questions to the person behind the client, in both eras of the protocol.

Up to 2025-11-25 the server sends a request of its own and waits; from 2026-07-28 it returns what it needs, and the client calls
again with the answers. A question's key holds a digest of its text, so that an answer counts for exactly what was asked; what
was answered before is handed to the client as the state of the request, and is read like any other argument when it comes back.
"""

from __future__ import annotations

import json

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from shardguide.frontends.chat.words import meaning
from shardguide.guidance.hints import Any
from shardguide.guidance.serialise import digest

MOST = 10  # questions in one form
ROUNDS = 3  # forms in one call: the first, what follows from its answers, an answer that could not be read
UNKNOWN = "I don't know"
_STATE = 20_000  # characters


class Pending(Exception):
    """The client has to answer and call again; holds the result that says so."""

    def __init__(self, result: types.InputRequiredResult) -> None:
        super().__init__("input required")
        self.result = result


def can_ask(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether the client shows forms to its user."""
    capabilities = ctx.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


async def ask(
    ctx: ServerRequestContext[Any, Any],
    params: types.CallToolRequestParams,
    message: str,
    schema: dict[str, Any],
    about: str = "",
    state: dict[str, Any] | None = None,
) -> dict[str, Any] | None:
    """What the user filled in; None where they declined. Raises Pending where the client has to call again.

    ``about`` is what the answer is to count for beyond the message, which may show only its beginning.
    """
    key = f"ask-{digest(message, schema, about)}"
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        answered = (params.input_responses or {}).get(key)
        if answered is None:
            request = types.ElicitRequest(
                params=types.ElicitRequestFormParams(message=message, requested_schema=schema)
            )
            kept = json.dumps(state) if state else None
            raise Pending(types.InputRequiredResult(input_requests={key: request}, request_state=kept))
        if not isinstance(answered, types.ElicitResult) or answered.action != "accept":
            return None
        return dict(answered.content or {})
    given = await ctx.session.elicit_form(message, schema, related_request_id=ctx.request_id)
    return dict(given.content or {}) if given.action == "accept" else None


def state_of(params: types.CallToolRequestParams) -> tuple[dict[str, str], str]:
    """Answers of earlier rounds, and why the last ones were refused; nothing where the client hands back something else."""
    text = params.request_state or ""
    try:
        state = json.loads(text) if len(text) <= _STATE else None
    except (ValueError, RecursionError):
        state = None
    if not isinstance(state, dict):
        return {}, ""
    answers, refused = state.get("answers"), state.get("refused")
    kept = answers if isinstance(answers, dict) else {}
    return {str(name): str(value) for name, value in kept.items()}, str(refused or "")[:600]


def form(
    questions: list[dict[str, Any]], properties: dict[str, Any] | None = None, refused: str = ""
) -> tuple[str, dict[str, Any]]:
    """Message and schema for open questions: flat, none required, since "I don't know" is an answer.

    ``properties`` are those of the tool that takes the answers: what is a closed list or a number there is one here.
    """
    asked = questions[:MOST]
    lines = [f"{number}. {one['ask']} {one['why']}" for number, one in enumerate(asked, 1)]
    fields = {one["id"]: _field(one, (properties or {}).get(one["id"], {})) for one in asked}
    first = f"{refused}\n" if refused else ""
    message = f"{first}Shardguide needs this for the answer; leave empty what you don't know.\n" + "\n".join(lines)
    return message, {"type": "object", "properties": fields, "required": []}


def _field(question: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """One field. Choices are a list to pick from where the tool takes no others, else examples."""
    out: dict[str, Any] = {"title": question["id"], "description": question["ask"]}
    choices = [str(one) for one in question["choices"]]
    listed = schema.get("enum")
    if listed:
        return {"type": "string", **out, "enum": [*([one for one in choices if one in listed] or listed), UNKNOWN]}
    if choices:
        out["description"] = f"{question['ask']} For example: {', '.join(choices)}."
    if schema.get("type") == "integer":
        return {"type": "integer", **out, "minimum": schema["minimum"]}
    return {"type": "string", **out, "maxLength": min(schema.get("maxLength", 4096), 4096)}


def answers(given: dict[str, Any] | None, questions: list[dict[str, Any]]) -> dict[str, str]:
    """What was really answered, of what was asked, as texts."""
    known = {question["id"] for question in questions}
    out = {}
    for name, value in (given or {}).items():
        plain = isinstance(value, (str, int, float)) and not isinstance(value, bool)
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # JSON knows one kind of number
        said = str(value).strip() if plain else ""
        if name in known and said and said != UNKNOWN and meaning(said, frozenset()).kind != "unknown":
            out[name] = said
    return out


def confirmation(message: str) -> tuple[str, dict[str, Any]]:
    """Message and schema of a yes or no."""
    field = {"type": "boolean", "title": "write", "description": "write exactly this", "default": False}
    return message, {"type": "object", "properties": {"write": field}, "required": ["write"]}
