"""``NamedTuple`` at half the price, for the modules on the way of every command.

``typing.NamedTuple`` turns each annotation into a ForwardRef, which compiles it: with some seventy record types that is a
sixth of what a plan may cost. Here the annotations stay the strings that they are. Type checkers see typing's own.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import namedtuple

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


__all__ = ["NamedTuple"]
