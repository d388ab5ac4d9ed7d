"""What follows an answer: what a yes means, trying something else and taking it back, writing, and questions that the answer answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardguide.frontends import conduct
from shardguide.notebook import Notebook, Place

from .test_talk import MODEL, PLAN, Script, known, say

__all__ = ["say"]  # the fixture

TRAIN = """import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
def main(model):
    dist.init_process_group("nccl")
    model = FSDP(model, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, device_id=torch.cuda.current_device())
    for x in range(3):
        model(x).backward()
"""


def notebook(say: Script) -> Notebook:
    return Notebook(Place(str(say.folder / "notebook.db"), True))


def states(say: Script) -> dict[str, list[str]]:
    """Workflow to the states of its answers."""
    out: dict[str, list[str]] = {}
    with notebook(say) as kept:
        for entry in kept.history(say.talk.project, 100):
            out.setdefault(entry.workflow, []).append(entry.state)
    return out


# What a yes means ---------------------------------------------------------------------------------------------------


def test_apply_after_an_approval_is_of_what_was_approved(say: Script) -> None:
    said = say(*PLAN, "approve", "apply", "yes")
    assert "Approved:" in said[9] and "apply writes its files" in said[9]
    assert "new" in said[10] or "+++" in said[10], said[10]
    assert "Type yes to confirm" in said[10] and "Wrote " in said[11]
    assert Path("shardguide/train_fsdp2.py").exists()
    assert "ask" not in states(say)


def test_apply_in_the_next_conversation_is_of_the_last_answer(say: Script) -> None:
    say(*PLAN, "yes", "quit")
    assert "Type yes to confirm" in say("apply", "no")[1]
    assert not Path("shardguide").exists()


def test_apply_with_nothing_to_write_says_so(say: Script) -> None:
    assert "no answer here to be written" in say("apply")[1]


@pytest.mark.parametrize("word", ["y", "yes", "ok", "sure", "approve"])
def test_a_yes_approves_only_what_was_asked(say: Script, word: str) -> None:
    """An answer in words asks for no approval, and one that is given to nothing is none (G4)."""
    said = say("ask", "what is NCCL?", word)
    assert "Approved" not in said[3] and "Nothing here waits for a yes" in said[3]
    assert set(states(say)["ask"]) == {"draft"}


def test_no_to_anything_else_turns_nothing_down(say: Script) -> None:
    said = say("ask", "what is NCCL?", "no")
    assert "Kept in the history" in said[3] and states(say) == {"ask": ["draft"]}


def test_after_a_question_on_the_side_the_prompt_says_what_yes_means(say: Script) -> None:
    said = say(*PLAN, "what is NCCL?", "y")
    assert f"The plan above ({say.talk.last['id']}): yes approves it" in said[9]
    assert "plan" in say.talk.last["workflow"] and states(say)["plan"] == ["approved", *states(say)["plan"][1:]]


def test_an_approved_answer_is_turned_down_only_where_that_is_said(say: Script) -> None:
    say("backend", "cuda", "ethernet", "linux", "yes")
    said = say("backend", "yes")
    assert "This is approved: no turns it down" in said[1] and "Anything else" not in said[1]
    assert "approved already" in said[2]


def test_y_is_not_enough_to_write_and_is_asked_again(say: Script) -> None:
    said = say(*PLAN, "apply", "y", "yes")
    assert "whole yes" in said[10] and "Wrote" in said[11]


# Trying something else --------------------------------------------------------------------------------------------


def remembered(say: Script) -> dict[str, object]:
    with notebook(say) as kept:
        return conduct.remembered(kept)


@pytest.mark.parametrize("back", ["undo", "back", "take that back"])
def test_a_what_if_with_its_questions_is_one_step_back(say: Script, back: str) -> None:
    said = say(*PLAN, "what if I have 64 gpus?", "8", back)
    assert "On how many nodes" in said[9] and "What changes" in said[10]
    assert "gpus = 16" in said[11] and "nodes = 2" in said[11]
    assert known(say)["gpus"] == 16 and known(say)["nodes"] == 2


def test_a_what_if_is_taken_back_at_its_question(say: Script) -> None:
    said = say(*PLAN, "what if I have 64 gpus?", "back")
    assert "On how many nodes" in said[9] and "gpus = 16" in said[10]
    assert known(say)["gpus"] == 16 and known(say)["nodes"] == 2


def test_two_what_ifs_are_two_steps(say: Script) -> None:
    say(*PLAN, "with sgd instead", "for 2.8?", "back")
    assert known(say)["optimizer"] == "sgd" and str(known(say)["torch"]).startswith("2.13")
    say("no")
    say(*PLAN, "with sgd instead", "for 2.8?", "back", "back")
    assert known(say)["optimizer"] == "adamw"


def test_back_in_the_interview_is_one_question(say: Script) -> None:
    say("plan", MODEL, "16", "2", "back")
    assert "nodes" not in known(say) and known(say)["gpus"] == 16


@pytest.mark.parametrize("asked", ["for 2.8?", "and for 2.8?", "what about 2.8?", "for 2.8"])
def test_another_release_is_a_try(say: Script, asked: str) -> None:
    """What is remembered stays until that answer is approved, and it is said."""
    before = say(*PLAN) and remembered(say)
    said = say("no", *PLAN, asked)
    assert "torch = 2.8" in said[-1] and "back takes that back" in said[-1] and "It is a try" in said[-1]
    assert "What changes" in said[-1]
    assert remembered(say) == before


def test_a_try_that_is_approved_is_what_is_so(say: Script) -> None:
    say(*PLAN, "what if I had 8 GPUs", "1", "yes")
    assert remembered(say)["gpus"] == 8 and remembered(say)["nodes"] == 1


def test_a_try_that_is_left_changes_nothing(say: Script) -> None:
    say(*PLAN, "what if I had 8 GPUs", "1", "draft")
    assert remembered(say)["gpus"] == 16 and remembered(say)["nodes"] == 2
    assert "gpus = 16" in say("plan", "x")[1]


def test_a_try_survives_the_end_of_the_conversation(say: Script) -> None:
    say(*PLAN, "what if I had 8 GPUs")
    say("yes", "1", "draft")
    assert remembered(say)["gpus"] == 16 and remembered(say)["nodes"] == 2


def test_a_what_if_at_a_question_is_a_try(say: Script) -> None:
    said = say("plan", MODEL, "16", "2", "what if I have 64 gpus?", "8")
    assert known(say)["gpus"] == 64 and remembered(say)["gpus"] == 16
    assert "never estimated" in say("yes", "is that enough for seq len 32k?")[2], said


def test_a_correction_is_no_try(say: Script) -> None:
    said = say(*PLAN, "gpus = 64, nodes = 8")
    assert "gpus is now 64, nodes is now 8." in said[9] and "try" not in said[9]
    assert remembered(say)["gpus"] == 64 and remembered(say)["nodes"] == 8


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("gpus 32", "gpus", 32),
        ("nodes 1", "nodes", 1),
        ("32 gpus", "gpus", 32),
        ("torch 2.8", "torch", "2.8"),
        ("GPU A100 80GB", "gpu", "A100"),
        ("sgd instead", "optimizer", "sgd"),
    ],
)
def test_facts_without_a_mark_between(say: Script, line: str, name: str, value: object) -> None:
    said = say(*PLAN, line)
    assert "Not known here" not in said[9]
    assert say.talk.state.arguments[name] in (value, str(value))


def test_too_adds_to_a_list(say: Script) -> None:
    said = say("join", "ddp", "yes", "unknown", "stop", "no", "and if I had zero too?")
    assert say.talk.state.arguments["with"] == "ddp,zero"
    assert "with with" not in said[7]


def test_too_adds_a_goal(say: Script) -> None:
    say("fsdp2", "memory", "also torch.compile")
    assert say.talk.state.arguments["goal"] == "memory,compile"


# Questions that the answer answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("show me the launch command", "--rdzv-endpoint"),
        ("how do I launch it?", "--rdzv-endpoint"),
        ("what is the command to start it", "--rdzv-endpoint"),
        ("how do I run this?", "--rdzv-endpoint"),
        ("give me the torchrun line", "--rdzv-endpoint"),
        ("how do I start it on slurm?", "#SBATCH"),
        ("show me the slurm script", "#SBATCH"),
        ("and for kubernetes?", "TrainJob"),
        ("how much memory is left for activations?", "never estimated"),
        ("is that enough for seq len 32k?", "never estimated"),
        ("will it fit with batch size 4?", "never estimated"),
        ("how much memory remains", "never estimated"),
        ("what's the largest batch I can use?", "never estimated"),
        ("is there room for 8k context", "never estimated"),
        ("will this oom?", "never estimated"),
        ("how do I measure it?", "max_memory_allocated"),
        ("show me the measure script", "max_memory_allocated"),
        ("how long will a step take?", "never"),
    ],
)
def test_what_the_plan_itself_says(say: Script, asked: str, expected: str) -> None:
    said = say(*PLAN, asked)[9]
    assert expected in said, said
    assert "Not known here" not in said and "DistributedDataParallel(" not in said


def test_what_is_left_is_the_difference_of_two_exact_numbers(say: Script) -> None:
    said = say(*PLAN, "how much memory is left for activations?")[9]
    record = say.talk.state.record
    left = record["hardware"]["memory_bytes"] - max(one["device_bytes"] for one in record["accounting"]["per_rank"])
    assert f"{left:,} bytes" in said and "show measure" in said


@pytest.mark.parametrize(
    "asked", ["what is torchrun?", "what is the difference between torchrun and srun?", "what is NCCL?"]
)
def test_what_is_asked_of_the_subject_is_not_the_plans(say: Script, asked: str) -> None:
    assert '--rdzv-endpoint="$HEAD' not in say(*PLAN, asked)[9]


# A question that is not answered ------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["show me the launch command", "explain more", "no", "yes", "hmm", "apply"])
def test_what_is_no_answer_twice_leads_on(say: Script, line: str) -> None:
    said = say("plan", "7b", "16", line, line)
    assert "Enter leaves it open" not in said[4] and "Enter leaves it open, back takes back" in said[5]


def test_show_is_of_the_answer(say: Script) -> None:
    assert "must be" not in say("plan", "7b", "16", "show me the launch command")[4]


# What is written ----------------------------------------------------------------------------------------------------


def test_what_was_written_is_told_how_to_take_back(say: Script) -> None:
    Path("train.py").write_text(TRAIN)
    said = say("migrate", "train.py", "why?", "apply", "yes", "undo")
    assert "Set the device" in said[3]  # why: the reasons of what is to decide
    assert "Wrote train.py" in said[5] and "train.py:6" in said[5]  # to decide, once more
    assert "mv train.py.bak train.py" in said[6] and "nothing of FSDP1" not in said[6]
    assert Path("train.py.bak").read_text() == TRAIN
    assert "Last time" not in say("quit")[0]  # nothing was left open


def test_no_after_writing_turns_nothing_down(say: Script) -> None:
    Path("train.py").write_text(TRAIN)
    say("migrate", "train.py", "apply", "yes", "no")
    assert states(say)["migrate"] == ["approved"]


def test_another_case_is_offered(say: Script) -> None:
    said = say("my job hangs after the first epoch", "DDP, the ranks have different numbers of batches", "join")
    assert "case for join" in said[2] and "with = ddp" in said[2]
    assert say.talk.state.task == "join" and say.talk.state.arguments["with"] == "ddp"


def test_a_question_on_the_side_says_what_can_be_typed_here(say: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardguide.workflows.release.installed", lambda site_packages: [])
    said = say("init", "", "env", "", "what is device_id for?", "explain device-binding", torch=None)
    assert "--option" not in said[5] and "shardguide explain" not in said[5] and "Still to answer" not in said[5]
    assert "explain device-binding" in said[5] and "Not known here" not in said[6] and "device_id" in said[6]


def test_a_task_is_named_below_an_answer(say: Script) -> None:
    say("explain", "gradient-clipping", "backend", "cuda")
    assert say.talk.state.task == "backend" and known(say)["device"] == "cuda"


@pytest.mark.parametrize("word", ["bye", "thanks", "Thank you!", "exit", "ciao", "quit."])
def test_a_farewell_ends(say: Script, word: str) -> None:
    assert len(say(word, "backend")) == 2
