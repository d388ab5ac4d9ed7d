"""The broken variants run for real over Gloo, each rank with another number of inputs, and so do their corrected forms.

What a variant does is stated in ``programs.py`` and shown here: it fails (hangs until Gloo gives up, or raises), or ends with wrong
values. The corrected class that the check writes ends with the values of the right program.
"""

from __future__ import annotations

import ast
from typing import Any

import pytest

from tests.snippets import gloo

from . import programs
from .test_check import verdicts

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch]

PATIENT, HASTY = 120, 2  # seconds that Gloo waits for a collective's partners: where they come, and where they do not
# What ranks 0 and 1 get of train() with two and four inputs of 1.0: worked out by hand from what each program says of itself.
RIGHT = {
    "meter": [[6.0], [6.0]],  # 2 + 2 + 1 + 1
    "scale": [[4.0], [6.0]],  # gradients of both ranks in two rounds, then of one in two
    "steps": [[28.0, 4], [42.0, 6]],  # 7 elements: 2 in each of two rounds, then 1; 2 + 2 counted while on, + 1 + 1
    "server": [[16.0], [24.0]],  # rows of 4 from both in two rounds, then from one
}
CORRECTED = [one for one in programs.VARIANTS if one.runs and one.base in RIGHT]
# Their mistake stands in the loop, not in a class.
IN_THE_LOOP = {
    "keyword misspelt in Join",
    "join_hook takes no keywords",
    "keyword that is needed and not passed",
    "enable=False with uneven data",
}


def run(program: str, patience: int = PATIENT) -> list[Any]:
    """``train`` on two ranks, rank 1 with two inputs more; raises RankFailed where a rank fails or does not end."""
    code = compile(program, "program", "exec")

    def body(rank: int) -> Any:
        import datetime

        import torch.distributed as dist

        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=PATIENT))
        dist.barrier()
        dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=patience))
        names: dict[str, Any] = {}
        exec(code, names)  # noqa: S102 - a program of our own
        return names["train"](rank, [1.0] * (2 + 2 * rank))

    return gloo.run(2, body, timeout=300 if patience == PATIENT else 4 * patience + 6)


def corrected(program: str, found: list[Any]) -> str:
    """The program with the classes that the check wrote in place of its own."""
    for one in found:
        if one.corrected:
            new = ast.parse(one.corrected)
            names = {getattr(node, "name", "") for node in new.body}
            tree = ast.parse(program)
            at = next(i for i, node in enumerate(tree.body) if getattr(node, "name", "") in names)
            tree.body = [node for node in tree.body if getattr(node, "name", "") not in names]
            tree.body[at:at] = new.body
            program = ast.unparse(tree)
    return program


@pytest.mark.parametrize("name", sorted(programs.RIGHT))
def test_right_programs_end_with_right_values(name: str) -> None:
    values = run(programs.RIGHT[name])
    if name == "pair":  # both ranks have the same model at the end, and 6 inputs were counted
        assert values[1][0] == 6.0 and values[1][1:] == values[0]
    else:
        assert values == RIGHT[name]


@pytest.mark.parametrize("variant", [one for one in programs.VARIANTS if one.runs], ids=lambda one: one.name)
def test_broken_variants(variant: programs.Variant) -> None:
    if variant.runs == "wrong":
        assert run(programs.text(variant)) != RIGHT[variant.base]
        return
    with pytest.raises(gloo.RankFailed):
        run(programs.text(variant), HASTY)


@pytest.mark.parametrize("name", ["no super().__init__", "a base that forgets it"])
def test_without_its_constructor_a_joinable_works_inside_join_only(name: str) -> None:
    """Join sets the configuration that the constructor would have made; outside it notify_join_context raises."""
    program = programs.text(next(one for one in programs.VARIANTS if one.name == name))
    with pytest.raises(gloo.RankFailed, match="constructor calls the"):
        run(program.replace("    with Join(", "    meter.add(0.0)\n    with Join("))


@pytest.mark.parametrize("variant", [one for one in CORRECTED if one.name not in IN_THE_LOOP], ids=lambda one: one.name)
def test_corrected_classes_end_with_right_values(variant: programs.Variant, tmp_path) -> None:
    program = programs.text(variant)
    found = verdicts(program, tmp_path)
    repaired = corrected(program, found)
    assert repaired != program
    values = run(repaired)
    expected = RIGHT[variant.base]
    if "count=False" in program:
        expected = [[one[0], 0] for one in expected]
    assert values == expected, repaired
