"""What the walker tells, and when: the checks answer in checks/__init__.py."""

from __future__ import annotations

import ast

from shardguide.guidance.hints import TYPE_CHECKING

from .records import Call, Thing, Things

if TYPE_CHECKING:
    from .walk import Walker


class Checks:
    """What the walker tells; see checks/__init__.py."""

    def call(self, walker: Walker, call: Call) -> None:
        """Tell of a call."""

    def dropped(self, walker: Walker, node: ast.Call, things: Things) -> None:
        """Tell of a call whose result nobody takes."""

    def loop(self, walker: Walker, node: ast.For | ast.AsyncFor) -> None:
        """Tell of a loop."""

    def context(self, walker: Walker, node: ast.With | ast.AsyncWith, item: ast.withitem, name: str) -> None:
        """Tell of a with statement."""

    def assigned(self, walker: Walker, node: ast.Assign) -> None:
        """Tell of an assignment."""

    def attribute_set(self, walker: Walker, owner: Thing, node: ast.Attribute, things: Things) -> None:
        """Tell of an assignment to an attribute."""

    def end(self, walker: Walker) -> None:
        """Tell that a root was followed to its end."""
