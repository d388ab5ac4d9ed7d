"""Taking back what was noted for a change that is refused half-way: a use is changed as a whole or not at all."""

from __future__ import annotations

from collections.abc import Callable

from shardguide.guidance.hints import Any

from .unit import Unit


def point(unit: Unit) -> Callable[[], None]:
    """Remember how a file stands; what is returned brings it back there."""
    source = unit.source
    spans = dict(source.spans)
    inserted = {place: list(lines) for place, lines in source.inserted.items()}
    maps = [(one, dict(one)) for one in (unit.imports, unit.helpers, unit.helper_names)]
    sets = [(one, set(one)) for one in (unit.given_names, unit.handled)]
    held: tuple[list[Any], ...] = (unit.todos, unit.uses, unit.spent, unit.dropped, unit.unwrapped)
    lists = [(one, list(one)) for one in held]

    def back() -> None:
        source.spans, source.inserted = spans, inserted
        for one, before in (*maps, *sets):
            one.clear()
            one.update(before)  # type: ignore[arg-type]
        for list_, items in lists:
            list_[:] = items

    return back
