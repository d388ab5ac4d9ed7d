"""main_hook written from an iteration: the same collectives in the same order, with values that change nothing."""

from __future__ import annotations

import ast
import re

from .steps import Choice, Loop, Op, Path, Step, talks
from .values import dtype_of, literal, shape_of

_LOWEST = {"MAX": "-", "MIN": ""}
_TOLD = re.compile(r"result (\d+)")


class CannotWrite(Exception):
    """Something of the iteration has no expression on a joined rank; what."""


class Writer:
    """Lines of a main_hook for one joinable."""

    def __init__(self, name: str, holder: str, counts: dict[str, str], held: dict[str, str]) -> None:
        self.held = held  # what the constructor was given: the attribute that keeps it
        self.name = name
        self.holder = holder  # what the joinable is called in the hook
        self.counts = counts  # attribute: the statement that counts it up, on the joinable
        self.number = 0
        self.open: list[str] = []

    def own(self, words: str) -> str:
        """An expression in terms of the hook."""
        for given, attribute in self.held.items():
            words = words.replace(given, attribute)
        out = re.sub(rf"\b{re.escape(self.name)}\.", f"{self.holder}.", words)
        out = re.sub(rf"\b{re.escape(self.name)}\b(?!\.)", self.holder, out)
        return out.replace("torch.distributed.", "dist.").replace("WORLD", "dist.group.WORLD")

    def body(self, paths: list[Path]) -> list[str]:
        """The statements of main_hook."""
        lines = self._merged([_sequence(path) for path in paths], 0)
        for attribute, statement in self.counts.items():
            if any(attribute in line for line in lines):
                lines.append(self.own(statement))
        return lines or ["pass"]

    def _merged(self, sequences: list[list[Choice | Step]], depth: int) -> list[str]:
        """Ways that share their beginning, then part at a test."""
        if depth > 12 or not sequences:
            return []
        if len({tuple(_key(one) for one in sequence) for sequence in sequences}) == 1:
            return self._straight(sequences[0])
        lines: list[str] = []
        while sequences and all(sequences):
            heads = {_key(sequence[0]) for sequence in sequences}
            first = sequences[0][0]
            if isinstance(first, Choice) and all(isinstance(s[0], Choice) and s[0].key == first.key for s in sequences):
                yes = self._merged([s[1:] for s in sequences if isinstance(s[0], Choice) and s[0].arm], depth + 1)
                no = self._merged([s[1:] for s in sequences if isinstance(s[0], Choice) and not s[0].arm], depth + 1)
                return [*lines, *self._test(first, yes, no)]
            if len(heads) > 1:
                self.open.append("its branches part in a way that is not written out here")
                return lines
            lines.extend(self._straight([first]))
            sequences = [sequence[1:] for sequence in sequences]
        return lines

    def _test(self, choice: Choice, yes: list[str], no: list[str]) -> list[str]:
        if yes == no:
            return yes
        words = choice.code
        found = _TOLD.search(choice.key)
        if found:
            words = _TOLD.sub(lambda match: f"shadow{match.group(1)}", choice.key)
        if not words:
            self.open.append(f"`{choice.words}` decides in the iteration; a rank that has run out cannot know it")
            return max(yes, no, key=len)
        words = self.own(words)
        common: list[str] = []
        while yes and no and yes[-1] == no[-1]:
            common.insert(0, yes.pop())
            no.pop()
        out = [f"if {words}:", *(f"    {line}" for line in yes or ["pass"])] if yes else []
        if not yes and no:
            out = [f"if not ({words}):", *(f"    {line}" for line in no)]
        elif no:
            out += ["else:", *(f"    {line}" for line in no)]
        return [*out, *common]

    def _straight(self, steps: list[Choice | Step]) -> list[str]:
        lines: list[str] = []
        for step in steps:
            if isinstance(step, Loop):
                lines.extend(self._loop(step))
            elif isinstance(step, Op):
                try:
                    lines.extend(self._op(step))
                except CannotWrite as error:
                    self.open.append(str(error))
                    lines.append(f"raise NotImplementedError({str(error)!r})")
        return lines

    def _loop(self, loop: Loop) -> list[str]:
        key = loop.key
        element = f"each of {key.text}"
        if key.kind == "range":
            over, name = f"range({self.own(key.make or key.text)})", "_"
        else:
            over, name = self.own(key.make or key.text), "each"
            self.number += 1
        try:
            ast.parse(over, mode="eval")
        except SyntaxError:
            self.open.append(f"what the loop goes over ({key.text}) has no expression on a rank that has run out")
            return [f"raise NotImplementedError({'the rounds of the loop'!r})"]
        inner = self._straight(list(loop.items))
        variable = f"each{self.number}" if name == "each" else name
        body = [line.replace(f"<{element}>", variable) for line in inner]
        return [f"for {variable} in {over}:", *(f"    {line}" for line in body or ["pass"])]

    def _tensor(self, op: Op) -> str:
        value = op.tensor
        if value is None:
            raise CannotWrite(f"the tensor of {op.name} is not known")
        shape, dtype = shape_of(value), dtype_of(value)
        extreme = _LOWEST.get(op.reduce)
        if literal(shape) and literal(dtype):
            of = shape.removeprefix("of size ")
            device = f"device={self.holder}.join_device"
            typed = f"dtype=torch.{dtype}, {device}"
            if extreme is not None:
                lowest = (
                    f'float("{extreme}inf")'
                    if "float" in dtype
                    else f"torch.iinfo(torch.{dtype}).{'min' if extreme else 'max'}"
                )
                return f"torch.full({self.own(of)}, {lowest}, {typed})"
            return f"torch.{'ones' if op.reduce == 'PRODUCT' else 'zeros'}({self.own(of)}, {typed})"
        if shape.startswith("like each of "):
            base = f"<{shape.removeprefix('like ')}>"
        elif value.make:
            base = self.own(value.make)
        else:
            raise CannotWrite(
                f"the shape of what line {getattr(op.node, 'lineno', 0)} sends is not known to a rank that has run out"
            )
        if base.startswith("<") and (".grad" in base or ".data" in base):
            base = base.replace(".grad>", ">").replace(".data>", ">")
        if extreme is not None:
            return f'torch.full_like({base}, float("{extreme}inf"))'
        return f"torch.{'ones' if op.reduce == 'PRODUCT' else 'zeros'}_like({base})"

    def _op(self, op: Op) -> list[str]:
        group = ""
        if op.group is not None:
            written = op.group.make or (op.group.text if op.group.kind == "name" else "")
            group = f", group={self.own(written)}" if written else f", group={self.holder}.join_process_group"
        elif (
            "group" in op.given and op.given["group"].text != "None"
        ):  # the default group here, by the name that the class gives it
            group = f", group={self.own(op.given['group'].make) or f'{self.holder}.join_process_group'}"
        if op.name == "barrier":
            return [f"dist.barrier({group.removeprefix(', ')})"]
        tensor = self._tensor(op)
        try:
            ast.parse(re.sub(r"<[^>]*>", "each", tensor), mode="eval")
        except SyntaxError:
            raise CannotWrite(
                f"the shape of what line {getattr(op.node, 'lineno', 0)} sends is not known to a rank that has run out"
            ) from None
        told = op.told.replace("result ", "shadow")
        lines = [f"{told} = {tensor}"]
        world = f"dist.get_world_size({group.removeprefix(', group=')})"
        if op.name == "all_reduce":
            operation = f", op=dist.ReduceOp.{op.reduce}" if op.reduce not in ("SUM", "") else ""
            return [*lines, f"dist.all_reduce({told}{operation}{group})"]
        if op.name in ("broadcast", "reduce"):
            if op.root is None or not (op.root.make or op.root.kind == "constant"):
                raise CannotWrite(f"the root of {op.name} is not known to a rank that has run out")
            root = "src" if op.name == "broadcast" else "dst"
            return [*lines, f"dist.{op.name}({told}, {root}={self.own(op.root.make or op.root.text)}{group})"]
        if op.name == "all_gather":
            return [*lines, f"dist.all_gather([torch.empty_like({told}) for _ in range({world})], {told}{group})"]
        if op.name in ("all_gather_into_tensor", "all_gather_single"):
            out = f"{told}.new_empty({world} * {told}.numel())"
            return [*lines, f"dist.{op.name}({out}, {told}{group})"]
        raise CannotWrite(f"{op.name} is not written out here")


def _key(step: Choice | Step) -> tuple[str, object]:
    if isinstance(step, Choice):
        return step.key, step.arm
    return type(step).__name__, id(step.node)


def _sequence(path: Path) -> list[Choice | Step]:
    """Tests and collectives of a way, in order."""
    kept = [(at, step) for at, step in enumerate(path.steps) if talks([step])]
    out: list[Choice | Step] = []
    choices = list(path.choices)
    for at, step in kept:
        while choices and choices[0].at <= at:
            out.append(choices.pop(0))
        out.extend(talks([step]))
    return [*out, *choices]
