"""The records' NamedTuple beside typing's own, which it stands in for at run time."""

from __future__ import annotations

import copy
import pickle
import typing

import pytest

from shardguide.guidance import hints


class Ours(hints.NamedTuple):
    name: str
    size: int = 3
    parts: tuple[str, ...] = ()

    @property
    def double(self) -> int:
        return self.size * 2


class Theirs(typing.NamedTuple):
    name: str
    size: int = 3
    parts: tuple[str, ...] = ()

    @property
    def double(self) -> int:
        return self.size * 2


def same(ours: typing.Any, theirs: typing.Any) -> bool:
    return tuple(ours) == tuple(theirs) and repr(ours) == repr(theirs).replace("Theirs", "Ours")


@pytest.mark.parametrize(
    ("values", "named"),
    [(("a",), {}), (("a", 1), {}), (("a", 1, ("b",)), {}), ((), {"name": "a"}), (("a",), {"parts": ("c",)})],
)
def test_made_alike(values: tuple[typing.Any, ...], named: dict[str, typing.Any]) -> None:
    ours, theirs = Ours(*values, **named), Theirs(*values, **named)
    assert same(ours, theirs) and ours.double == theirs.double
    assert ours._asdict() == theirs._asdict() and ours._fields == theirs._fields
    assert hash(ours) == hash(theirs) == hash(tuple(theirs)) and ours == tuple(theirs)
    assert same(ours._replace(size=9), theirs._replace(size=9))
    assert same(Ours._make(theirs), theirs)
    unpickled = pickle.loads(pickle.dumps(ours))  # noqa: S301 - what was just pickled
    for again in (unpickled, copy.copy(ours), copy.deepcopy(ours)):
        assert type(again) is Ours and again == ours
    assert Ours._field_defaults == Theirs._field_defaults and Ours.__match_args__ == Theirs.__match_args__


@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), (("a", 1, (), 4), {}), (("a",), {"name": "b"}), (("a",), {"other": 1}), ((), {"size": 1})],
)
def test_refused_alike(values: tuple[typing.Any, ...], named: dict[str, typing.Any]) -> None:
    for kind in (Ours, Theirs):
        with pytest.raises(TypeError):
            kind(*values, **named)


def test_misuse_is_refused_alike() -> None:
    for kind in (Ours, Theirs):
        with pytest.raises(ValueError):
            kind("a")._replace(other=1)
        with pytest.raises(TypeError):
            kind._make(["a"])
        with pytest.raises(AttributeError):
            kind("a").size = 1  # type: ignore[misc]
        with pytest.raises(AttributeError):
            kind("a").other = 1  # type: ignore[union-attr]
    with pytest.raises(AttributeError):
        type(hints.NamedTuple)("Wrong", (hints.NamedTuple,), {"__new__": None})
