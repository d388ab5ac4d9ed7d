"""The conversation without a terminal: scripted lines in, what is shown out. What is asked, understood, corrected and asked on."""

from __future__ import annotations

import ast
import random
import subprocess
from pathlib import Path

import pytest

from shardguide.frontends.chat import replies
from shardguide.frontends.chat.talk import Talk
from shardguide.frontends.render.blocks import Block
from shardguide.frontends.render.plain import render
from shardguide.notebook import Notebook, Place, talks
from shardguide.workflows import catalogue, find_out, outputs

MODEL = str(Path(__file__).parents[2] / "examples" / "llama-3.1-8b")
CSV = "name, memory.total [MiB]\n" + "NVIDIA H100 80GB HBM3, 81559 MiB\n" * 8
TOPO = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-31\nGPU1\tNV18\t X \t0-31\n\nLegend:\n  X = Self\n"
SMI = (Path(__file__).parents[1] / "tasks" / "files" / "plan-13b-two-4090" / "nvidia-smi.txt").read_text()


class Script:
    """Says its lines one after the other; ``shown`` holds what was shown after each of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.talks = 0

    def __call__(self, *lines: str, torch: str | None = "2.13") -> list[str]:
        shown = [""]
        left = list(lines)

        def read(prompt: str, completions: tuple[str, ...]) -> str:
            shown[-1] += prompt
            if not left:
                raise EOFError
            shown.append("")
            return left.pop(0)

        def show(blocks: list[Block]) -> None:
            shown[-1] += render(blocks)

        with Notebook(Place(str(self.folder / "notebook.db"), True)) as notebook:
            self.talk = Talk(read, show, notebook, torch, None)
            with pytest.raises(EOFError):
                self.talk.run()
        return [" ".join(one.split()) for one in shown]


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    return Script(tmp_path)


PLAN = ("plan", MODEL, "16", "2", "H100-SXM-80GB", "infiniband", "adamw", "float32")


def known(say: Script) -> dict[str, object]:
    return {name: one["value"] for name, one in say.talk.state.record["answers"].items()}


def test_a_plan_and_what_is_asked_of_it(say: Script) -> None:
    said = say(*PLAN, "why not hsdp?", "why fp16", "show torchrun", "sources", "more", "show")
    assert (
        "hybrid: everything sharded over groups of 8 ranks" in said[8]
        and "Confirm with" not in said[8]
        and "--show" not in said[8]
    )
    assert said[9].startswith("sharding: hybrid")  # it was chosen, so its reasons
    assert "float16" in said[10] and "--rdzv-endpoint" in said[11]
    assert "torchtitan" in said[12] and "Exact bytes per rank" in said[13]
    assert "fsdp2" in said[14] and "torchrun" in said[14]


def test_the_same_with_something_else_shows_what_changes(say: Script) -> None:
    said = say(*PLAN, "what if I had 8 GPUs", "1", "with sgd instead", "back", "for 2.5?", "show the FSDP1 form")
    assert "Now with gpus = 8" in said[9] and "On how many nodes" in said[9]  # the nodes of 16 GPUs say nothing of 8
    assert "What changes" in said[10] and "sharding full" in said[10] and "(was: hybrid" in said[10]
    assert "Now with optimizer = sgd" in said[11] and "What changes" in said[11]
    assert "PyTorch 2.5" in said[13] and "What changes" in said[13]
    assert "FullyShardedDataParallel" in said[14] and "Decisions" not in said[14]
    assert say.talk.state.arguments["optimizer"] == "adamw"


@pytest.mark.parametrize(
    ("pasted", "expected"),
    [(CSV, {"gpu": "NVIDIA H100 80GB HBM3", "gpu_memory": "81559MiB"}), (TOPO, {"intra": "nvlink"}), (SMI, {"gpu": "NVIDIA GeForce RTX 4090"})],
    ids=["csv", "topo", "nvidia-smi"],
)  # fmt: skip
def test_a_pasted_report_is_read(say: Script, pasted: str, expected: dict[str, object]) -> None:
    say("plan", "7b", "?", pasted)
    assert expected.items() <= known(say).items()


@pytest.mark.parametrize(
    ("before", "name", "output", "value"),
    [
        (("7b", "16"), "nodes", "SLURM_JOB_NUM_NODES=4", 4),
        (("7b", "16"), "nodes", "node1\nnode2\n", 2),
        (("7b", "16", "2", "H100-SXM-80GB"), "inter", "mlx5_0\n\t\tlink_layer:\tInfiniBand\n\t\tlink_layer:\tInfiniBand", "infiniband"),
        (("7b", "16", "2", "H100-SXM-80GB"), "inter", "mlx5_0\n\t\tlink_layer:\tEthernet", "roce"),
        (("7b", "16", "2", "H100-SXM-80GB"), "inter", "ls: cannot access '/sys/class/infiniband': No such file or directory", "ethernet"),
        (("7b", "16", "2", "H100-SXM-80GB", "1"), "optimizer", "train.py:12: opt = torch.optim.AdamW(params)", "adamw"),
        (("7b", "16", "2", "H100-SXM-80GB", "1", "1"), "param_dtype", "torch.float32", "float32"),
    ],
)  # fmt: skip
def test_what_a_command_prints_is_the_answer(
    say: Script, before: tuple[str, ...], name: str, output: str, value: object
) -> None:
    said = say("plan", *before, "?", output)
    assert said[-3].endswith(f"{name} (? if you don't know) >") and "To find out, run:" in said[-2]
    assert known(say)[name] == value


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("2.8.0+cu128", "2.8.0"),
        ("$ python -V\nPython 3.11.4\n$ pip show torch\nName: torch\nVersion: 2.7.1+cu126\n", "2.7.1"),
        (">>> torch.__version__\n'2.9.0'\n", ""),
        ("torch==2.6.0\ntorchvision==0.21.0\n", "2.6.0"),
        ("torch 2.6.0\ntorch 2.7.0\n", ""),
    ],
)
def test_the_release_in_an_output(text: str, release: str) -> None:
    assert outputs.read("torch", text) == release


def test_the_outputs_of_the_other_workflows(say: Script) -> None:
    say(
        "backend",
        "?",
        "None 6.3.42 False",
        "4",
        "uname -s",
        "Linux node7 5.15.0-91-generic #101-Ubuntu SMP x86_64 GNU/Linux",
    )
    assert known(say)["device"] == "rocm" and known(say)["os"] == "linux" and known(say)["inter"] == "none"
    say(
        "no",
        "join",
        "train.py:3:from torch.nn.parallel import DistributedDataParallel\ntrain.py:9:opt = ZeroRedundancyOptimizer(",
        "0 120\n1 119",
    )
    assert known(say)["with"] == "ddp,zero" and known(say)["uneven"] == "yes"


def test_an_answer_in_words_may_hold_several(say: Script) -> None:
    said = say("plan", "7b", "16 GPUs on 2 nodes", "H100 SXM 80GB")
    assert "Taken: gpus = 16, nodes = 2." in said[3]
    assert known(say)["gpus"] == 16 and known(say)["nodes"] == 2


def test_what_is_no_answer_is_said_and_the_question_stays(say: Script) -> None:
    said = say("backend", "banana", "42", "what is NCCL?", "NVIDIA", "back", "cpu")
    assert "device must be one of cuda" in said[2] and "--device" not in said[2]
    assert "device must be one of" in said[3]
    assert "NCCL" in said[4] and said[4].endswith("device (? if you don't know) >")
    assert "What links the nodes?" in said[5] and "On which kind of device" in said[6]
    assert known(say)["device"] == "cpu"


def test_choices_by_their_numbers(say: Script) -> None:
    say("fsdp2", "2, 4")
    assert known(say)["goal"] == "memory,compile"
    say("no", "backend", "1", "2", "1")
    assert known(say)["inter"] == "ethernet"


@pytest.mark.parametrize(
    "words", ["?", "I don't know", "no idea", "dunno", "not sure", "how do I find out?", "how can I check that"]
)
def test_not_knowing_leads_to_a_command(say: Script, words: str) -> None:
    assert "uname -s" in say("backend", "cuda", "ethernet", words)[4]


def test_a_known_answer_is_corrected_from_the_next_conversation(say: Script) -> None:
    say(*PLAN, "yes")
    said = say("plan", "optimizer = sgd", "gpus to 8", "1", "param_dtype is banana", "known")
    assert "Known from before" in said[1] and "optimizer = adamw" in said[1]
    assert "optimizer is now sgd." in said[2] and "gpus is now 8." in said[3] and "On how many nodes" in said[3]
    assert known(say)["optimizer"] == "sgd" and "is now banana" not in said[5] and "8 (from user)" in said[6]


def test_the_record_is_used_and_held_against_now(say: Script) -> None:
    say("backend", "cuda", "ethernet", "linux", "yes")
    again = say("backend")
    assert "Asked here before" in again[1] and ", approved)" in again[1] and "the same answer" in again[1]
    other = say("no", "backend", torch="2.5")
    assert "It was for PyTorch 2.13" in other[2] and "this is for PyTorch 2.5." in other[2]
    assert "The approval was given to the earlier answer, not to this one." in other[2]


def test_something_else_than_what_was_left_open(say: Script) -> None:
    """Said where yes or no was asked for, it is taken up, and what was left open stays."""
    say("backend", "cuda")
    said = say("my run hangs after the first epoch on 4 nodes")
    assert "backend stays open" in said[1] and "I take this as: diagnose" in said[1]
    said = say("no", "init")  # the one of the moment, which comes first
    assert "Last time diagnose" in said[0] and "Last time backend was left open" in said[1]
    assert "init stays open" not in said[2] and "backend stays open" in said[2]
    assert say.talk.state.task == "init"
    assert "Go on with it? (yes, no)" in say("hm", "banana", "?")[3]


def test_done_and_not_done(say: Script) -> None:
    said = say("plan", MODEL, "", "", "H100", "", "", "", "", "", "draft", "quit")
    assert any("gpus: not answered" in one and "plan: " not in one for one in said), said


def test_unclear_words_are_kept_for_the_task_that_is_then_named(say: Script) -> None:
    said = say("the thing on the 3rd box is weird", "3")
    assert "Which of these is it?" in said[1]
    assert say.talk.state.arguments["question"] == "the thing on the 3rd box is weird"


def test_two_at_once_keep_both(say: Script) -> None:
    with Notebook(Place(str(say.folder / "notebook.db"), True)) as notebook:
        names = []
        for number in range(2):
            say("backend", "cuda" if number else "xpu")
            names = talks.conversations(notebook, say.talk.project)
            assert len(names) == 1
            plain = {**names[0][1], "by": {"process": 1, "started": "x"}}  # as another process left it
            notebook.keep_conversation(names[0][0], None)
            notebook.keep_conversation(f"{say.talk.project}//other{number}", plain)
            if not number:
                notebook.keep_conversation(f"{say.talk.project}//aside", plain)
                notebook.keep_conversation(f"{say.talk.project}//other0", None)
                say("no")
        # the one that was declined is gone, and the other is there
        assert [state["arguments"]["device"] for _, state in talks.conversations(notebook, say.talk.project)] == [
            "cuda"
        ]


def test_a_live_conversation_is_left_alone(say: Script) -> None:
    say("backend", "cuda")
    with Notebook(Place(str(say.folder / "notebook.db"), True)) as notebook:
        ((name, state),) = talks.conversations(notebook, say.talk.project)
        started = (
            Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19] if Path("/proc/1/stat").exists() else ""
        )
        notebook.keep_conversation(name, {**state, "by": {"process": 1, "started": started}})
        said = say()
        assert ("Last time" in said[0]) == (not started)
        assert talks.conversations(notebook, say.talk.project)[0][1]["arguments"]["device"] == "cuda"


def test_review_of_pasted_code_and_its_rules(say: Script) -> None:
    code = 'import torch.distributed as dist\n\n\ndef main():\n    dist.init_process_group("nccl", group_name="x")\n    dist.destroy_process_group()\n'
    said = say("review", code, "why FSD109", "why")
    assert "FSD109" in said[2] and "Wrong" in said[3] and "FSD109" in said[4]


def test_a_log_pasted_below_a_diagnosis_is_read_as_well(say: Script) -> None:
    log = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nRuntimeError: trying to initialize the default process group twice!\n'
    said = say("diagnose", "it died", log)
    assert "no diagnosis is known" in said[2] and "What did it print?" in said[2] and "Paste more" in said[2]
    assert "Certain" in said[3] and "twice" in said[3]
    said = say("no", "diagnose", "it died", "all ranks hang after the first epoch", "what is a watchdog?")
    assert "Possible: uneven_batches" in said[4] and "uneven_batches" not in said[5]


@pytest.mark.parametrize(
    "line",
    [
        "\x00\x01\x02\xff",
        "x" * 100_000,
        "    ",
        "ошибка при запуске",
        "我的训练卡住了",
        "'; DROP TABLE answers; --",
        "\n\n\n",
        "🤖" * 50,
    ],
)
def test_strange_lines_anywhere(say: Script, line: str) -> None:
    say(line, "new", "new", "backend", line, "cuda", line, "ethernet", "linux", line, "no", torch="2.13")


def test_a_pasted_log_of_a_thousand_lines(say: Script) -> None:
    log = "".join(
        f"2026-01-01 00:00:{number % 60:02d} [rank{number % 8}] step {number} loss 2.0\n" for number in range(1000)
    )
    said = say(log + "RuntimeError: trying to initialize the default process group twice!\n")
    assert "I take this as: diagnose" in said[1] and "twice" in said[1] and len(said[1]) < 6000


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("bac", {"backend", "back"}),
        ("why n", {"why not gloo"}),
        ("look at ./tra", {"ining.log"}),
        ("nv", {"nvlink"}),
        ("inf", {"infiniband"}),
        ("show b", {"show build"}),
    ],
)
def test_completion_is_of_the_whole_line_and_of_paths(say: Script, line: str, expected: set[str]) -> None:
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from shardguide.frontends.chat.terminal import _Completer

    Path("training.log").write_text("x")
    offers = ("backend", "why not gloo", "show build", "nvlink", "infiniband")
    found = _Completer(offers).get_completions(Document(line, len(line)), CompleteEvent(completion_requested=True))
    assert {one.text for one in found} == expected


def test_not_knowing_twice_leaves_it_open(say: Script) -> None:
    said = say("backend", "?", "no idea")
    assert "Device is left open." in said[3] and "What links the nodes?" in said[3]


def test_pasted_code_is_reviewed_and_a_pasted_call_checked(say: Script) -> None:
    code = "import torch\nimport torch.distributed as dist\n\nif dist.get_rank() == 0:\n    dist.barrier()\n"
    said = say(
        f"what is wrong here?\n```python\n{code}```",
        "new",
        'dist.init_process_group("nccl", init_method="env://") is that right?',
    )
    assert "review" in said[1] and "FSD201" in said[1]
    assert "I take this as: init" in said[3]


def test_a_command_line_is_understood(say: Script) -> None:
    said = say("review nothing.py")
    assert "Not there, and so not read: nothing.py." in said[1] and "Which code?" in said[1]


def test_a_path_with_spaces(say: Script) -> None:
    folder = Path("my run")
    folder.mkdir()
    (folder / "rank 0.log").write_text("RuntimeError: trying to initialize the default process group twice!\n")
    for words in ("my run/rank 0.log", "it died: 'my run/rank 0.log'", "it died, see my\\ run/rank\\ 0.log"):
        assert "twice" in say(words, "draft")[1], words


def test_every_question_has_a_way_to_find_out() -> None:
    """A command for each, which its shell (or Python) can read."""
    asked = {field.name for task in catalogue.TASKS.values() for field in task.fields() if field.ask} | {"current"}
    for name in sorted(asked):
        found = find_out.how(name)
        assert found is not None, name
        if found.command.startswith("print("):
            ast.parse(found.command)
        else:
            subprocess.run(["bash", "-n", "-c", found.command], check=True, timeout=10)
    read = {name for name, one in find_out.BY_FIELD.items() if one.pasted}
    assert read - set(outputs._READERS) == {"gpu", "gpu_memory", "intra"}  # these are reports, read by the workflow


TYPED = [
    "plan", "tune", "join", "backend", "init", "fsdp2", "explain", "review", "migrate", "diagnose", "ask", "7b", "16", "2", "1",
    "A100", "80GB", "nvlink", "adamw", "float32", "cuda", "linux", "?", "back", "new", "known", "help", "yes", "no", "draft",
    "why", "more", "sources", "show", "apply", "drain", "unknown", "tcp", "env",
    "", MODEL, "why not hsdp", "what if 32 gpus", "with sgd instead", "for 2.5", "for 3.1", "show fsdp2", "show the fsdp1 form", "gpus = 7",
    "gpus = -3", "from = /etc/passwd", "also = x", "torch = 9", "model = /nix", "ddp,zero", "10.0.0.1:29500", "gradient clipping", "now = x",
    "it hangs at the end of the epoch", "RuntimeError: NCCL error", "what is NCCL?", "select = FSD999", "full_script = yes", "tp = 3", CSV,
    "leave the file out", "memory,compile", "path = a", "paths = b", "text = d", "topic = clip", "shard_size = 5", "measured = x", "why FSD999",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_typed_the_conversation_goes_on(say: Script, seed: int) -> None:
    chance = random.Random(seed)
    said = say(*(chance.choice(TYPED) for _ in range(60)))
    assert len(said) == 61


def test_a_choice_is_an_answer_whatever_it_means_elsewhere(say: Script) -> None:
    say("join", "ddp", "unknown", "stop", "no")
    assert known(say) == {
        "collectives": "no",
        "on_exhausted": "stop",
        "torch": "2.13",
        "uneven": "unknown",
        "with": "ddp",
    } | {"torch": known(say)["torch"]}


@pytest.mark.parametrize(
    ("words", "now"),
    [
        ("api=fsdp1,param=fp16", ["api=fsdp1", "param=fp16"]),
        ("api=fsdp2 offload=yes", ["api=fsdp2", "offload=yes"]),
        ("FSDP1 in fp16 with a GradScaler, no CPU offload", ["api=fsdp1", "param=fp16", "offload=no", "scaler=yes"]),
        ("plain DDP, bf16", ["api=ddp", "param=bf16"]),
        ("fully_shard with CPU offload", ["api=fsdp2", "offload=yes"]),
    ],
)
def test_what_runs_now_in_settings_or_words(words: str, now: list[str]) -> None:
    found = replies.reply("tune", {"id": "current", "choices": ()}, words)
    assert found.arguments == {"now": now}


def test_settings_are_taken_at_any_question_of_tune(say: Script) -> None:
    say("tune", MODEL, "api=fsdp1,param=fp16")
    assert say.talk.state.arguments["now"] == ["api=fsdp1", "param=fp16"]


def test_the_other_form_of_a_subject_is_its_code_alone(say: Script) -> None:
    said = say("explain", "gradient-clipping", "show the FSDP1 form", "show the accelerate form")
    assert "(fsdp1-clip)" in said[3] and "What goes wrong" not in said[3]
    assert "explain has no accelerate form." in said[4]
