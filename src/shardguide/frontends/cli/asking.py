"""Questions on a terminal: each with its reason and choices; an empty answer leaves it open."""

from __future__ import annotations

import sys
from argparse import Namespace

from shardguide.frontends.render.safe import one_line
from shardguide.guidance.hints import Any


def may_ask(arguments: Namespace) -> bool:
    """Whether somebody is there to answer."""
    return (
        not (arguments.no_input or arguments.json or arguments.format == "json")
        and sys.stdin.isatty()
        and sys.stdout.isatty()
    )


def ask(question: dict[str, Any]) -> str:
    """One answer as text; "" leaves the question open. A number picks a choice."""
    print(f"\n{one_line(question['ask'])}")
    print(f"  why: {one_line(question['why'])}")
    choices = question["choices"]
    # Where the answer is itself a number, a numbered list would be ambiguous.
    numeric = bool(choices) and all(str(choice).isdigit() for choice in choices)
    if numeric:
        print(f"  for example: {', '.join(str(choice) for choice in choices)}")
    for number, choice in enumerate(() if numeric else choices, 1):
        print(f"  {number}) {one_line(choice)}")
    listed = bool(choices) and not numeric
    hint = "a number from the list, your own words, or Enter to leave it open" if listed else "Enter to leave it open"
    try:
        text = input(f"  [{hint}] > ").strip()
    except EOFError:
        return ""
    if listed and text.isdigit() and 1 <= int(text) <= len(choices):
        return str(choices[int(text) - 1])
    return text


def confirm(question: str) -> bool:
    """A clear yes; anything else is no."""
    try:
        return input(f"{question} Type yes to confirm: ").strip().lower() == "yes"
    except EOFError:
        return False
