"""One way through an iteration against one through main_hook, collective by collective."""

from __future__ import annotations

import re

from shardguide.guidance.hints import TYPE_CHECKING

from .results import Issue, Row, place
from .steps import Loop, Op, Step, Unknown, flat
from .values import Value, dtype_of, literal, shape_of

if TYPE_CHECKING:
    from .compare import Comparison

_NEUTRAL = {"SUM": "0.0", "AVG": "0.0", "PRODUCT": "1.0"}


def sayer(name: str) -> re.Pattern[str]:
    """Finds the name of a shared object in words."""
    return re.compile(rf"\b{re.escape(name)}\.")


def describe(step: Step, name: str) -> str:
    """A step in words; the joinable itself is ``self``."""
    if isinstance(step, Unknown):
        return step.why
    if isinstance(step, Loop):
        inner = ", ".join(describe(one, name) for one in step.items)
        return f"for each of {own(step.key.text, name)}: {inner}"
    assert isinstance(step, Op)
    words = [step.name if not step.reduce or step.reduce == "SUM" else f"{step.name} ({step.reduce})"]
    if step.tensor is not None and not step.native:
        shape, dtype = shape_of(step.tensor), dtype_of(step.tensor)
        if literal(shape):
            words.append(f"of shape {shape} {dtype if literal(dtype) else ''}".rstrip())
        else:
            words.append(f"of {own(shape.removeprefix('like '), name)}")
    if step.root is not None:
        words.append(f"root {own(step.root.text, name)}")
    if step.name not in ("new_group",):
        words.append(f"on {own(group(step), name)}")
    if step.is_async:
        words.append("async" if step.waited else "async, not waited for")
    return " ".join(words)


def own(words: str, name: str) -> str:
    """Words about the shared object as its own methods would say them."""
    return sayer(name).sub("self.", words).replace("WORLD", "the default group")


def group(op: Op) -> str:
    """The group of a collective as text."""
    return "WORLD" if op.group is None else op.group.text


class Pair:
    """One way through the iteration against one through the hook."""

    def __init__(self, whole: Comparison, mine: list[Step], theirs: list[Step]) -> None:
        self.whole = whole
        self.name = whole.name
        self.rows: list[Row] = []
        self.issues: list[Issue] = []
        self.open: list[str] = []
        self.hook = theirs
        self._lists(mine, theirs)

    def violations(self) -> list[Issue]:
        """What is surely wrong."""
        return [one for one in self.issues if one.violated]

    def _row(self, a: Step | None, b: Step | None, result: str, why: str = "") -> None:
        self.rows.append(
            Row(
                len(self.rows) + 1,
                describe(a, self.name) if a is not None else "",
                place(a.file, a.node) if a is not None else "",
                describe(b, self.name) if b is not None else "",
                place(b.file, b.node) if b is not None else "",
                result,
                why,
            )
        )

    def _lists(self, mine: list[Step], theirs: list[Step]) -> None:
        unsure = [step for step in (*flat(mine), *flat(theirs)) if isinstance(step, Unknown)]
        for step in unsure:
            self.open.append(f"{place(step.file, step.node)}: {step.why}")
        if unsure:
            mine = [step for step in mine if any(isinstance(one, Op) for one in flat([step]))]
            theirs = [step for step in theirs if any(isinstance(one, Op) for one in flat([step]))]
            whole = not any(isinstance(step, Unknown) for step in flat(self.hook))
            if whole and not theirs:
                for one in mine:
                    self._lacks(one, theirs)
                return
            if len(mine) != len(theirs):  # what could not be followed may make up for it
                for one in mine:
                    self._row(one, None, "unknown", unsure[0].why)
                for other in theirs:
                    self._row(None, other, "unknown", unsure[0].why)
                return
        if self._turned(mine, theirs):
            return
        for a, b in _aligned(mine, theirs):
            if a is not None and b is not None:
                self._both(a, b)
            elif a is not None:
                self._lacks(a, theirs)
            elif b is not None:
                self._row(None, b, "extra", "the iteration makes no such collective")
                what = f"{describe(b, self.name)}"
                self.issues.append(Issue("FSD611", b.file, b.node, what))

    def _turned(self, mine: list[Step], theirs: list[Step]) -> bool:
        """The same collectives in another order."""
        a, b = [_sign(one) for one in mine], [_sign(one) for one in theirs]
        if a == b or sorted(a) != sorted(b):
            return False
        for one, other, x, y in zip(mine, theirs, a, b, strict=True):
            self._row(one, other, "matched" if x == y else "differs", "" if x == y else "another order")
        at = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
        what = f"{describe(mine[at], self.name)} comes first in the iteration, {describe(theirs[at], self.name)} in main_hook"
        self.issues.append(Issue("FSD612", theirs[at].file, theirs[at].node, what))
        return True

    def _lacks(self, a: Step, theirs: list[Step]) -> None:
        self._row(a, None, "missing", "main_hook does not make it")
        file, node = (theirs[0].file, theirs[0].node) if theirs else self.whole.hook_at
        what = f"{describe(a, self.name)} ({place(a.file, a.node)})"
        self.issues.append(Issue("FSD610", file, node, what))  # type: ignore[arg-type]

    def _both(self, a: Step, b: Step) -> None:
        if isinstance(a, Loop) and isinstance(b, Loop):
            self._loops(a, b)
            return
        if isinstance(a, Loop) or isinstance(b, Loop):
            self._row(a, b, "differs", "one is made for each of several, the other once")
            what = f"the iteration: {describe(a, self.name)}; main_hook: {describe(b, self.name)}"
            loop = a if isinstance(a, Loop) else b
            assert isinstance(loop, Loop)
            open_ = bool(loop.key.flags & {"argument", "keyword"})
            self.issues.append(Issue("FSD618", b.file, b.node, what, True, not open_))
            return
        assert isinstance(a, Op) and isinstance(b, Op)
        problems = list(self._fields(a, b))
        wrong = [one for one in problems if one[1]]
        if wrong:
            self._row(a, b, "differs", "; ".join(one[2] for one in wrong))
        elif problems:
            self._row(a, b, "unknown", "; ".join(one[2] for one in problems))
        else:
            self._row(a, b, "matched")
        for code, violated, why, certain in problems:
            if code:
                self.issues.append(Issue(code, b.file, b.node, why, violated, certain))
            else:
                self.open.append(f"{place(b.file, b.node)}: {why}")

    def _fields(self, a: Op, b: Op) -> list[tuple[str, bool, str, bool]]:
        if a.name != b.name:
            return [("FSD612", True, f"{a.name} in the iteration, {b.name} in main_hook", True)]
        out: list[tuple[str, bool, str, bool]] = []
        if group(a) != group(b):
            known = all(_understood(one.group) for one in (a, b))
            sure = {a.group.kind if a.group else "name", b.group.kind if b.group else "name"} == {"name", "object"}
            words = (
                f"the iteration's {a.name} is on {own(group(a), self.name)}, main_hook's on {own(group(b), self.name)}"
            )
            sure = sure or (a.group is not None and b.group is not None)
            out.append(("FSD613" if known else "", known, words, sure))
        if a.reduce != b.reduce:
            out.append(("FSD615", True, f"operation {a.reduce} in the iteration, {b.reduce} in main_hook", True))
        roots = [one.root.text if one.root is not None else "" for one in (a, b)]
        if roots[0] != roots[1]:
            known = all(one.root is None or one.root.kind == "constant" for one in (a, b))
            words = f"root {own(roots[0], self.name)} in the iteration, {own(roots[1], self.name)} in main_hook"
            out.append(("FSD615" if known else "", known, words, known))
        out.extend(self._tensors(a, b))
        if b.is_async and not b.waited:
            out.append(("FSD616", True, f"main_hook does not wait for its {b.name}", True))
        if a.is_async and not a.waited and not a.native and self.whole.own:
            out.append(("FSD616", True, f"the iteration does not wait for its {a.name}", True))
        return out

    def _tensors(self, a: Op, b: Op) -> list[tuple[str, bool, str, bool]]:
        if a.tensor is None or b.tensor is None or (a.native and b.native):
            return []
        out: list[tuple[str, bool, str, bool]] = []
        mine, theirs = shape_of(a.tensor), shape_of(b.tensor)
        if _size(mine) != _size(theirs):
            known = (literal(mine) and literal(theirs) and mine[0] == theirs[0] == "(") or _apart(
                _size(mine), _size(theirs)
            )
            words = f"shape {own(mine, self.name)} in the iteration, {own(theirs, self.name)} in main_hook"
            out.append(("FSD614" if known else "", known, words, known))
        first, second = dtype_of(a.tensor), dtype_of(b.tensor)
        if first != second:
            known = literal(first) and literal(second)
            words = f"dtype {own(first, self.name)} in the iteration, {own(second, self.name)} in main_hook"
            out.append(("FSD614" if known else "", known, words, known))
        if not out and self.whole.own:
            out.extend(self._adds(a, b))
        return out

    def _adds(self, a: Op, b: Op) -> list[tuple[str, bool, str, bool]]:
        assert a.tensor is not None and b.tensor is not None
        if not b.reduce or b.reduce not in ("SUM", "AVG", "PRODUCT", "MAX", "MIN"):
            return []
        wanted = _NEUTRAL.get(b.reduce, "")
        if a.node is b.node and a.tensor.text == b.tensor.text:
            return [("FSD637", False, "main_hook runs the iteration itself, with the joined rank's own values", False)]
        if wanted and b.tensor.fill == wanted:
            return []
        if not wanted:
            zeros = b.tensor.fill == "0.0" and b.reduce == "MIN"
            return [("FSD637", False, f"main_hook puts {b.tensor.fill} into a {b.reduce}", False)] if zeros else []
        empty = "empty" in b.tensor.text
        if b.tensor.fill or empty or b.tensor.text.startswith(f"{self.name}."):
            put = b.tensor.fill or ("what memory held" if empty else f"{own(b.tensor.text, self.name)} itself")
            return [
                ("FSD637", empty, f"main_hook puts {put} into the {b.reduce}, where {wanted} changes nothing", empty)
            ]
        return []

    def _loops(self, a: Loop, b: Loop) -> None:
        if a.key.text != b.key.text:
            flags = a.key.flags | b.key.flags
            words = f"{own(a.key.text, self.name)} rounds in the iteration, {own(b.key.text, self.name)} in main_hook"
            both = a.key.ref is not None and b.key.ref is not None and a.key.kind == b.key.kind == "constant"
            if flags & {"argument", "keyword"} or (
                "autograd" in a.key.flags and b.key.text == f"reversed({a.key.text})"
            ):
                self.open.append(f"{place(b.file, b.node)}: {words}")
            else:
                self._row(a, b, "differs", words)
                self.issues.append(Issue("FSD618", b.file, b.node, words, True, both))
                return
        elif (
            "autograd" in a.key.flags
            and len({shape_of(o.tensor) for o in flat(a.items) if isinstance(o, Op) and o.tensor})
            and not a.key.text.startswith("while")
        ):
            self.open.append(
                f"{place(a.file, a.node)}: autograd decides in which order the hooks of {own(a.key.text, self.name)} run"
            )
        if a.key.text.startswith("while "):
            self.open.append(f"{place(a.file, a.node)}: the number of rounds of a while loop")
        before = len(self.rows)
        self._lists(a.items, b.items)
        self.rows[before:] = [
            row._replace(
                iteration=f"for each of {own(a.key.text, self.name)}: {row.iteration}" if row.iteration else "",
                hook=f"for each of {own(b.key.text, self.name)}: {row.hook}" if row.hook else "",
            )
            for row in self.rows[before:]
        ]


def _understood(group: Value | None) -> bool:
    """Whether it is known which group an expression means, or at least which attribute of the joinable."""
    return group is None or group.kind in ("name", "object") or bool(group.make) or "config" in group.flags


def _apart(a: str, b: str) -> bool:
    """Whether two sizes differ by a number: n and n + 1."""
    longer, shorter = (a, b) if len(a) > len(b) else (b, a)
    return shorter.startswith("of size ") and re.fullmatch(rf"{re.escape(shorter)} [+-] [1-9]\d*", longer) is not None


def _size(shape: str) -> str:
    """``zeros(n)`` and ``zeros((n,))`` have one shape."""
    return shape.replace("of size (", "of size ").removesuffix(",)") if shape.startswith("of size ") else shape


def _sign(step: Step) -> str:
    if isinstance(step, Op):
        shape = _size(shape_of(step.tensor)) if step.tensor is not None and literal(shape_of(step.tensor)) else ""
        return f"{step.name} {step.reduce} {shape}"
    if isinstance(step, Loop):
        return f"for {step.key.text}: " + ",".join(_sign(one) for one in step.items)
    return "?"


def _aligned(mine: list[Step], theirs: list[Step]) -> list[tuple[Step | None, Step | None]]:
    """Both lists side by side: in step where they have the same length, else by their longest common part."""
    if len(mine) == len(theirs):
        return list(zip(mine, theirs, strict=True))
    a, b = [_sign(one) for one in mine], [_sign(one) for one in theirs]
    best = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) - 1, -1, -1):
        for j in range(len(b) - 1, -1, -1):
            best[i][j] = best[i + 1][j + 1] + 1 if a[i] == b[j] else max(best[i + 1][j], best[i][j + 1])
    out: list[tuple[Step | None, Step | None]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        if i < len(a) and j < len(b) and a[i] == b[j]:
            out.append((mine[i], theirs[j]))
            i, j = i + 1, j + 1
        elif j == len(b) or (i < len(a) and best[i + 1][j] >= best[i][j + 1]):
            out.append((mine[i], None))
            i += 1
        else:
            out.append((None, theirs[j]))
            j += 1
    return out
