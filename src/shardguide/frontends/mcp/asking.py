"""Questions to the person behind the client, in both eras of the protocol.

Up to 2025-11-25 the server sends a request of its own and waits; from 2026-07-28 it returns what it needs, and the client calls
again with the answers. A question's key holds a digest of its text, so that an answer counts for exactly what was asked.
"""

from __future__ import annotations

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from shardguide.guidance.hints import Any
from shardguide.guidance.serialise import digest

MOST = 8  # questions in one form


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
    ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams, message: str, schema: dict[str, Any]
) -> dict[str, Any] | None:
    """What the user filled in; None where they declined. Raises Pending where the client has to call again."""
    key = f"ask-{digest(message, schema)}"
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        answered = (params.input_responses or {}).get(key)
        if answered is None:
            request = types.ElicitRequest(
                params=types.ElicitRequestFormParams(message=message, requested_schema=schema)
            )
            raise Pending(types.InputRequiredResult(input_requests={key: request}))
        if not isinstance(answered, types.ElicitResult) or answered.action != "accept":
            return None
        return dict(answered.content or {})
    given = await ctx.session.elicit_form(message, schema, related_request_id=ctx.request_id)
    return dict(given.content or {}) if given.action == "accept" else None


def form(questions: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """Message and schema for open questions: all texts, none required, since "I don't know" is an answer."""
    asked = questions[:MOST]
    lines = [f"{number}. {one['ask']} {one['why']}" for number, one in enumerate(asked, 1)]
    properties = {}
    for one in asked:
        hint = f" For example: {', '.join(map(str, one['choices']))}." if one["choices"] else ""
        properties[one["id"]] = {
            "type": "string",
            "title": one["id"],
            "description": f"{one['ask']}{hint}",
            "maxLength": 4096,
        }
    message = "Shardguide needs this for the answer; leave empty what you don't know.\n" + "\n".join(lines)
    return message, {"type": "object", "properties": properties, "required": []}


def confirmation(message: str) -> tuple[str, dict[str, Any]]:
    """Message and schema of a yes or no."""
    field = {"type": "boolean", "title": "write", "description": "write exactly this", "default": False}
    return message, {"type": "object", "properties": {"write": field}, "required": ["write"]}
