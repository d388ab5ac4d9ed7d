"""Names for annotations and records, without the price of ``typing``: a tenth of what a plan may cost.

Type checkers see typing's own. At run time annotations stay the strings that they are (every module imports
``annotations`` from ``__future__``), so a name is only needed to be there; and ``NamedTuple`` does without turning each
annotation into a ForwardRef, which compiles it.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take a variable of this name as true
if TYPE_CHECKING:
    from typing import Any, NamedTuple, NoReturn, TextIO, TypeVar
else:
    from collections import _tuplegetter as _getter  # what namedtuple reads fields with

    Any = NoReturn = TextIO = object

    def TypeVar(name, *_constraints, **_options):
        """Stand in for typing's class of that name."""
        return object

    # What a record class may not override (as in typing), and what namedtuple defines itself.
    _OWN = frozenset(
        {
            "__new__",
            "__init__",
            "__slots__",
            "__getnewargs__",
            "_fields",
            "_field_defaults",
            "_make",
            "_replace",
            "_asdict",
        }
    )

    _new = tuple.__new__

    class _Record(tuple):
        """What collections.namedtuple gives a class, without compiling a ``__new__`` for each: 74 of them cost 4 ms of a plan's 36."""

        __slots__ = ()
        _fields = ()
        _field_defaults = {}  # noqa: RUF012 - each class has its own

        def __new__(cls, *values, **named):
            if named or len(values) != len(cls._fields):
                values = _complete(cls, values, named)
            return _new(cls, values)

        @classmethod
        def _make(cls, values):
            made = _new(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"{cls.__name__} has {len(cls._fields)} fields, not {len(made)}")
            return made

        def _replace(self, **named):
            made = _new(type(self), map(named.pop, self._fields, self))
            if named:
                raise ValueError(f"{type(self).__name__} has no field {', '.join(named)}")
            return made

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            shown = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
            return f"{type(self).__name__}({shown})"

        def __getnewargs__(self):
            return tuple(self)

    def _complete(cls, values, named):
        """Every field's value, from those given by position, those given by name, and the defaults."""
        if len(values) > len(cls._fields):
            raise TypeError(f"{cls.__name__} has {len(cls._fields)} fields, not {len(values)}")
        defaults, filled = cls._field_defaults, list(values)
        for name in cls._fields[len(values) :]:
            if name in named:
                filled.append(named.pop(name))
            elif name in defaults:
                filled.append(defaults[name])
            else:
                raise TypeError(f"{cls.__name__} lacks a value for {name}")
        if named:
            raise TypeError(f"{cls.__name__} has no field, or has twice, {', '.join(named)}")
        return filled

    class _Meta(type):
        def __new__(mcs, name, bases, namespace):
            if not bases:
                return type.__new__(mcs, name, bases, namespace)
            fields = tuple(namespace.get("__annotations__", ()))
            for key in namespace:
                if key in _OWN:
                    raise AttributeError(f"a NamedTuple may not define {key}")
            made = dict(namespace)
            made["__slots__"] = ()
            made["_fields"] = made["__match_args__"] = fields
            made["_field_defaults"] = {field: namespace[field] for field in fields if field in namespace}
            for at, field in enumerate(fields):
                made[field] = _getter(at, None)
            return type(name, (_Record,), made)

    class NamedTuple(metaclass=_Meta):
        """See typing.NamedTuple."""


__all__ = ["TYPE_CHECKING", "Any", "NamedTuple", "NoReturn", "TextIO", "TypeVar"]
