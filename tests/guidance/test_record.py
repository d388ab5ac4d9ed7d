"""The record: its JSON, its identity, and the cheap NamedTuple against typing's."""

from __future__ import annotations

import json
import typing

import pytest

from shardguide.guidance import hints, record
from shardguide.guidance.serialise import digest, plain, to_dict, to_json


def test_answer_says_from_not_source() -> None:
    """``from`` is a keyword of Python but the name that DESIGN.md gives the field."""
    assert plain(record.Answer(16, "user")) == {"value": 16, "from": "user"}


def test_json_is_one_object_of_plain_values() -> None:
    release = record.Release("2.13.0", "user")
    guidance = record.Guidance(
        "plan", "0" * 16, release, "complete", {"gpus": record.Answer(16, "user")}, extra={"accounting": {"x": (1, 2)}}
    )
    parsed = json.loads(to_json(to_dict(guidance)))
    assert parsed["schema"] == "shardguide/1" and parsed["accounting"] == {"x": [1, 2]} and "extra" not in parsed
    assert list(parsed)[:3] == ["schema", "id", "workflow"]


def test_digest_depends_on_content_only() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})
    assert len(digest("x")) == 16


def test_not_a_number_never_reaches_the_json() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        to_json({"x": float("nan")})


class Cheap(hints.NamedTuple):
    """Doc."""

    a: int
    b: str = "x"

    @property
    def double(self) -> int:
        """Twice a."""
        return 2 * self.a


class Typed(typing.NamedTuple):
    """Doc."""

    a: int
    b: str = "x"

    @property
    def double(self) -> int:
        """Twice a."""
        return 2 * self.a


def test_the_cheap_named_tuple_is_a_named_tuple() -> None:
    for cls in (Cheap, Typed):
        assert cls(1) == (1, "x") and cls(1).double == 2 and cls(1)._replace(a=3).a == 3
        assert cls._fields == ("a", "b") and cls._field_defaults == {"b": "x"} and cls.__doc__ == "Doc."
        assert issubclass(cls, tuple) and repr(cls(1)) == f"{cls.__name__}(a=1, b='x')"
        with pytest.raises(AttributeError):
            cls(1).a = 2  # type: ignore[misc]
        with pytest.raises(TypeError):
            cls()  # type: ignore[call-arg]
