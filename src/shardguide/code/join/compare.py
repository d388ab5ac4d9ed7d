"""Iteration against main_hook: every way through the one against those of the other that the same branches allow."""

from __future__ import annotations

import operator
import re

from ..review.project import File
from .pair import Pair, own
from .results import Issue, Row, Unknowns
from .steps import Choice, Op, Path, Step, flat, talks

_SIGNS = {"==": operator.eq, ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}
_TOLD = re.compile(r"result (\d+)(?:\.item\(\))?(?:\[0\])?(?:\.item\(\))?(?: (==|>|<|>=|<=) (-?[\d.]+))?$")
_OF_CODE = ("result ", "the argument")


def compatible(one: Path, other: Path) -> bool:
    """Whether one run can take both ways."""
    arms = {choice.key: choice.arm for choice in one.choices}
    return all(arms.get(choice.key, choice.arm) is choice.arm for choice in other.choices)


def told(choice: Choice, iteration: list[Step], hook: list[Step]) -> bool | None:
    """What a test on a communicated value says, from what the others put in; None where that is not known."""
    found = _TOLD.match(choice.key)
    if found is None:
        return None
    theirs = [step.told for step in flat(hook) if isinstance(step, Op)]
    ops = [step for step in flat(iteration) if isinstance(step, Op)]
    name = f"result {found.group(1)}"
    if name not in theirs or theirs.index(name) >= len(ops):
        return None
    tensor = ops[theirs.index(name)].tensor
    if tensor is None or not tensor.fill:
        return None
    number = float(tensor.fill)
    if found.group(2):
        return bool(_SIGNS[found.group(2)](number, float(found.group(3))))
    return number != 0


class Comparison:
    """One Joinable's iteration against its main hook."""

    def __init__(self, name: str, own: bool = True) -> None:
        self.name = name
        self.own = own  # the user's own class, not one of PyTorch's
        self.rows: list[Row] = []
        self.issues: list[Issue] = []
        self.unknown = Unknowns()
        self.when = ""
        self.whole = True  # whether every way through main_hook is known: else one that fits may be missing

    def run(self, iterations: list[Path], hooks: list[Path], hook_at: tuple[object, object]) -> None:
        """Compare all ways."""
        outcomes: list[tuple[Path, Path, Pair]] = []
        self.hook_at = hook_at
        for one in iterations:
            mine = talks(one.steps)
            keys = {choice.key for choice in one.choices}
            fitting = []
            for other in hooks:
                if not compatible(one, other):
                    continue
                answers = [
                    (choice, told(choice, mine, talks(other.steps)))
                    for choice in other.choices
                    if choice.key not in keys
                ]
                if any(answer is not None and answer is not choice.arm for choice, answer in answers):
                    continue
                fitting.append((other, [c for c, answer in answers if answer is None and "told" in c.flags]))
            if not fitting:
                self.unknown.add("no way through main_hook fits the branches of the iteration")
            pairs = [(other, Pair(self, mine, talks(other.steps)), open_) for other, open_ in fitting]
            loose = [one_ for one_ in pairs if one_[2]]
            if loose and any(not one_[1].issues for one_ in pairs):
                for open_ in loose:
                    self.unknown.add(
                        f"main_hook tests {open_[2][0].words}, which the others tell it; what they put in was not followed"
                    )
                pairs = [one_ for one_ in pairs if not one_[1].issues]
            outcomes.extend((one, other, pair) for other, pair, _ in pairs)
            self._stale(one, [other for other, _ in fitting])
        good = [outcome for outcome in outcomes if not outcome[2].violations()]
        bad = [outcome for outcome in outcomes if outcome[2].violations()]
        shown = bad[0] if bad else good[0] if good else None
        if shown is not None:
            full = max(bad or good, key=lambda outcome: len(outcome[2].rows))
            self.rows = full[2].rows
            self.when = (
                "; ".join(
                    f"{choice.words} is {choice.arm}"
                    for choice in (*full[0].choices, *full[1].choices)
                    if choice.node is not None
                )
                if bad
                else ""
            )
        if bad and not self.whole:
            for _, _, pair in bad:
                self.unknown.add(f"{pair.violations()[0].what}: on the ways that were followed")
        elif bad and good and not any(talks(path.steps) for path in hooks):
            # An empty hook: whatever the tests say, what some iterations make has no partner.
            self._take([issue._replace(certain=False) for issue in bad[0][2].issues])
        elif bad and good:
            self._conditional(bad, good)
        else:
            for _, _, pair in bad:
                self._take(pair.issues)
        for _, _, pair in outcomes:
            self._take([issue for issue in pair.issues if not issue.violated])
            for words in pair.open:
                self.unknown.add(words)

    def _take(self, issues: list[Issue]) -> None:
        for issue in issues:
            if not any((one.code, one.line, one.file) == (issue.code, issue.line, issue.file) for one in self.issues):
                self.issues.append(issue)

    def _conditional(self, bad: list[tuple[Path, Path, Pair]], good: list[tuple[Path, Path, Pair]]) -> None:
        """Some ways match and some do not: the test between them is what the other side lacks."""
        for one, other, pair in bad:
            mine = {choice.key for choice in one.choices}
            theirs = {choice.key for choice in other.choices}
            single = [c for c in one.choices if c.key not in theirs] + [c for c in other.choices if c.key not in mine]
            alike = [g for g in good if sum(_differs(g[0], one, c) or _differs(g[1], other, c) for c in single)]
            blamed = [
                c for c in single if any(_differs(g[0], one, c) or _differs(g[1], other, c) for g in alike)
            ] or single
            if not blamed:
                self._take(pair.issues)
                continue
            choice = blamed[-1]
            issue = pair.violations()[0]
            side = "the iteration" if choice.key in mine else "main_hook"
            given = "argument" in choice.flags and "data" not in choice.flags
            soft = given or "keyword" in choice.flags or (".grad is None" in choice.key and choice.arm)
            if soft:
                self.unknown.add(f"{issue.what}, where `{choice.words}` is {choice.arm}: that is known in {side} only")
                continue
            what = f"where `{choice.words}` is {choice.arm} in {side}, {issue.what}"
            state = "data" in choice.flags or "state" in choice.flags
            self._take(
                [Issue("FSD617", issue.file, choice.node if choice.node is not None else issue.node, what, True, state)]
            )

    def _stale(self, one: Path, others: list[Path]) -> None:
        counted = {write[1:] for write in one.writes if write.startswith("+")}
        for choice in one.choices:
            for other in others:
                shared = next((c for c in other.choices if c.key == choice.key), None)
                if shared is None:
                    continue
                for name in counted:
                    if name in choice.key and name not in other.writes and f"+{name}" not in other.writes:
                        what = f"{own(name, self.name)}, which the iteration counts up and main_hook does not"
                        file = one.steps[0].file if one.steps else other.steps[0].file if other.steps else None
                        if file is not None:
                            self._take([Issue("FSD636", _file_of(other, file), shared.node, what)])


def _file_of(path: Path, otherwise: File) -> File:
    return path.steps[0].file if path.steps else otherwise


def _differs(a: Path, b: Path, choice: Choice) -> bool:
    mine = next((c.arm for c in a.choices if c.key == choice.key), None)
    other = next((c.arm for c in b.choices if c.key == choice.key), None)
    return (mine is not None and other is not None and mine is not other) or (mine is None) is not (other is None)
