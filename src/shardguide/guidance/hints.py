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
    from collections import namedtuple

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

    class _Meta(type):
        def __new__(mcs, name, bases, namespace):
            if not bases:
                return type.__new__(mcs, name, bases, namespace)
            fields = namespace.get("__annotations__", {})
            defaults = [namespace[field] for field in fields if field in namespace]
            made = namedtuple(name, fields, defaults=defaults, module=namespace["__module__"])
            made.__annotations__ = fields
            for key, value in namespace.items():
                if key in _OWN:
                    raise AttributeError(f"a NamedTuple may not define {key}")
                if key not in fields and key not in ("__module__", "__qualname__", "__annotations__"):
                    setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_Meta):
        """See typing.NamedTuple."""


__all__ = ["TYPE_CHECKING", "Any", "NamedTuple", "NoReturn", "TextIO", "TypeVar"]
