"""The command line from outside: exit statuses, the notebook between calls, approval, writing, and a real terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import sys
import time
from pathlib import Path

import pytest

from .conftest import FULL, Shardguide

WITHOUT_INTER = [word for word in FULL if word not in ("--inter", "infiniband")]


def test_complete_plan_is_status_0_and_one_record(shardguide: Shardguide) -> None:
    ran = shardguide(*FULL, "--json")
    assert ran.status == 0 and ran.err == ""
    assert ran.json["schema"] == "shardguide/1"
    assert ran.json["accounting"]["parameters"] == 8_030_261_248


def test_missing_answers_are_status_3_with_everything_else(shardguide: Shardguide) -> None:
    ran = shardguide(*WITHOUT_INTER, "--json")
    assert ran.status == 3
    assert [question["id"] for question in ran.json["questions"]] == ["inter"]
    assert ran.json["decisions"] and ran.json["accounting"]["per_rank"] and ran.json["snippets"]


def test_answers_are_remembered_for_the_project_and_not_asked_twice(shardguide: Shardguide) -> None:
    assert shardguide(*FULL, "--json").status == 0
    again = shardguide("plan", "--json")
    assert again.status == 0
    assert {name: answer["from"] for name, answer in again.json["answers"].items()}["gpus"] == "notebook"
    elsewhere = Shardguide(shardguide.folder.parent)
    elsewhere.env["SHARDGUIDE_HOME"] = shardguide.env["SHARDGUIDE_HOME"]
    assert elsewhere("plan", "--json").status == 3


def test_answers_show_set_forget(shardguide: Shardguide) -> None:
    assert shardguide("answers", "set", "inter", "IB").status == 0
    assert shardguide("answers", "show", "--json").json["answers"][0]["value"] == "infiniband"
    assert shardguide(*WITHOUT_INTER, "--json").status == 0
    assert shardguide("answers", "forget", "inter").status == 0
    assert shardguide(*WITHOUT_INTER, "--json").status == 3
    assert shardguide("answers", "set", "inter", "pigeon").status == 2
    assert shardguide("answers", "set", "colour", "blue").status == 2
    assert shardguide("answers", "forget", "inter").status == 2


def test_approve_reject_history(shardguide: Shardguide) -> None:
    identity = shardguide(*FULL, "--json").json["id"]
    assert shardguide("approve", identity[:6]).status == 0
    assert shardguide(*FULL, "--json").json["approval"]["state"] == "approved"
    assert shardguide("history", identity, "--json").json["approval"]["state"] == "approved"
    assert shardguide("reject", identity, "--note", "other cluster").status == 0
    assert shardguide(*FULL, "--json").json["approval"]["state"] == "rejected"
    listed = shardguide("history", "--json").json["guidance"]
    assert [(entry["id"], entry["state"]) for entry in listed] == [(identity, "rejected")]
    assert shardguide("approve", "ffffffff").status == 2


def test_nothing_is_written_without_a_yes(shardguide: Shardguide) -> None:
    ran = shardguide(*FULL, "--write", "out")
    assert ran.status == 2 and "approve" in ran.err
    assert not (shardguide.folder / "out").exists()


def test_a_refused_plan_and_an_open_one_are_not_approved(shardguide: Shardguide) -> None:
    """8.03e9 parameters of 16 bytes a parameter over 2 ranks do not go into 24 GB."""
    small = [*FULL, "--gpus", "2", "--gpu", "L4", "--intra", "pcie"]
    record = shardguide(*small, "--json").json
    assert [check["id"] for check in record["checks"] if check["result"] == "failed"] == ["memory"]
    assert record["approval"]["asked"] == "" and "approve" not in [step["tool"] for step in record["next"]]
    ran = shardguide("approve", record["id"])
    assert ran.status == 2 and "memory" in ran.err and "--anyway" in ran.err and ran.err.count("\n") == 1
    ran = shardguide("approve", record["id"], "--anyway")
    assert ran.status == 0 and "memory" in ran.out
    waiting = shardguide("plan", "7b", "--gpus", "8", "--nodes", "1", "--gpu", "T4", "--json").json
    for option in ([], ["--anyway"]):
        ran = shardguide("approve", waiting["id"], *option)
        assert ran.status == (2 if waiting["status"] == "needs_answers" else 0) == 2
    ran = shardguide("plan", "13b", "--gpus", "12", "--write", "out", "--no-input")
    assert ran.status == 2 and "waits for answers (" in ran.err


def test_answers_take_an_options_spelling(shardguide: Shardguide) -> None:
    assert shardguide("answers", "set", "param-dtype", "bf16").status == 0
    shown = shardguide("answers", "show", "param-dtype", "--json").json["answers"]
    assert [(one["name"], one["value"]) for one in shown] == [("param_dtype", "bfloat16")]
    assert shardguide("answers", "show", "gpu-memory", "--json").json["answers"] == []
    assert shardguide("answers", "forget", "param-dtype").status == 0
    assert shardguide("answers", "set", "param_dtype", "bf16").status == 0
    assert shardguide("answers", "set", "param dtype", "bf16").status == 2


def test_every_answer_that_is_remembered_can_be_set(shardguide: Shardguide) -> None:
    from shardguide.frontends.conduct import REMEMBERED

    for name in sorted(REMEMBERED):
        # Whether the value is any good is the field's own affair.
        assert "there is no answer" not in shardguide("answers", "set", name, "nonsense").err, name
    assert shardguide("answers", "set", "ipoib", "maybe").status == 2
    assert shardguide("answers", "set", "os", "Windows").status == 0
    assert shardguide("answers", "show", "os", "--json").json["answers"][0]["value"] == "windows"


def test_the_command_for_an_unknown_family_prints_the_program(shardguide: Shardguide) -> None:
    (shardguide.folder / "config.json").write_text('{"model_type": "mamba"}')
    ran = shardguide("plan", "config.json", "--gpus", "8")
    command = re.search(r"shardguide (plan [^.]*?--show manifest)", ran.err)
    assert ran.status == 2 and "manifest" in ran.err and command
    printed = shardguide(*command[1].split())
    assert printed.status in (0, 3) and printed.err == ""
    compile(printed.out, "write_manifest.py", "exec")
    assert "build_model" in printed.out


def test_one_model_has_one_id_however_its_path_is_spelled(shardguide: Shardguide) -> None:
    folder = shardguide.folder / "models" / "one"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text((Path(FULL[1]) / "config.json").read_text())
    manifest = {"format": "shardguide-manifest/1", "parameters": [{"name": "a", "shape": [2, 2], "dtype": "float32"}]}
    (folder / "shapes.json").write_text(json.dumps(manifest))
    spelled = {
        "models/one": ("./models/one/", str(folder), "models/../models/one/config.json"),
        "models/one/shapes.json": ("./models/one/shapes.json", str(folder / "shapes.json")),
    }
    for first, others in spelled.items():
        ids = {shardguide("plan", one, *FULL[2:], "--json").json["id"] for one in (first, *others)}
        assert len(ids) == 1
    (folder / "acc.yaml").write_text("distributed_type: FSDP\nnum_processes: 16\nnum_machines: 2\n")
    (folder / "steps.csv").write_text("step,seconds\n" + "".join(f"{step},1.5\n" for step in range(20)))
    for option, name in (("--from", "acc.yaml"), ("--current", "acc.yaml"), ("--measured", "steps.csv")):
        paths = (f"models/one/{name}", f"./models/one/{name}", str(folder / name))
        ids = {shardguide(*FULL, option, path, "--json").json["id"] for path in paths}
        assert len(ids) == 1, option
    here = Shardguide(folder)
    assert (
        here("plan", ".", *FULL[2:], "--json").json["id"] == here("plan", "config.json", *FULL[2:], "--json").json["id"]
    )


def test_an_approved_plan_is_written_and_backed_up(shardguide: Shardguide) -> None:
    identity = shardguide(*FULL, "--json").json["id"]
    shardguide("approve", identity)
    (shardguide.folder / "out").mkdir()
    (shardguide.folder / "out" / "launch.sh").write_text("echo mine\n")
    ran = shardguide(*FULL, "--write", "out")
    assert ran.status == 0, ran.err
    assert "-echo mine" in ran.err  # shown as a difference before it is replaced
    assert (shardguide.folder / "out" / "launch.sh.bak").read_text() == "echo mine\n"
    assert "torchrun" in (shardguide.folder / "out" / "launch.sh").read_text()
    assert "fully_shard" in (shardguide.folder / "out" / "train_fsdp2.py").read_text()
    again = shardguide(*FULL, "--write", "out")
    assert again.status == 0 and "holds these files already" in again.err
    written = json.loads((shardguide.folder / "out" / "shardguide-plan.json").read_text())
    assert written["approval"]["state"] == "approved" and "earlier" not in written
    shardguide("reject", identity)
    ran = shardguide(*FULL, "--write", "elsewhere")
    assert ran.status == 2 and "was turned down" in ran.err and not (shardguide.folder / "elsewhere").exists()


def test_show_prints_one_snippet(shardguide: Shardguide) -> None:
    ran = shardguide(*FULL, "--show", "fsdp2")
    assert ran.status == 0 and "fully_shard(" in ran.out
    assert shardguide(*FULL, "--show", "nothing").status == 2


def test_markdown_and_verbose(shardguide: Shardguide) -> None:
    assert shardguide(*FULL, "--format", "md").out.startswith("# llama-3.1-8b, 8,030,261,248 parameters")
    verbose = shardguide(*FULL, "--verbose").out
    assert "fully_shard(" in verbose and "docs.pytorch.org" in verbose


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "7b", "--gpus", "17", "--nodes", "2"], ["plan", "7b", "--gpus", "x"], ["plan", "no-such-file"], ["plan", "--bogus"],
        ["frobnicate"], ["plan", "7b", "--from", "no-such-file"], ["plan", "7b", "--measured", "no-such-file"],
        ["plan", "7b", "--current", "no-such-file"], ["plan", "7b", "--site-packages", "nowhere"], ["plan", "7b", "--torch", "9.9"],
        ["tune", "7b", "--now", "param"], ["history", "zz"], ["approve"], ["docs", "verify", "--site-packages", "nowhere"],
    ],
)  # fmt: skip
def test_unusable_input_is_one_sentence_and_status_2(shardguide: Shardguide, arguments: list[str]) -> None:
    ran = shardguide(*arguments)
    assert ran.status == 2 and ran.out == ""
    assert ran.err.startswith("shardguide: ") and ran.err.count("\n") == 1


def _terminal(
    shardguide: Shardguide, arguments: list[str], answers: dict[str, str], columns: int = 100
) -> tuple[int, str]:
    """Run on a real terminal and type an answer whenever its question appears; (status, everything on the screen)."""
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(shardguide.folder)
        env = shardguide.env | {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "50"}
        os.execve(sys.executable, [sys.executable, "-m", "shardguide", *arguments], env)
    screen, waiting, deadline = "", dict(answers), time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([master], [], [], 0.1)[0]:
            try:
                data = os.read(master, 65536)
            except OSError:
                break
            if not data:
                break
            screen += data.decode(errors="replace")
        for question, answer in list(waiting.items()):
            if question in screen and screen.rstrip(" ").endswith((">", "confirm:")):
                os.write(master, (answer + "\n").encode())
                del waiting[question]
                time.sleep(0.3)
                break
    os.close(master)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), screen


def test_on_a_terminal_it_asks_and_uses_the_answer(shardguide: Shardguide) -> None:
    status, screen = _terminal(shardguide, WITHOUT_INTER, {"What links the nodes?": "1"})
    assert status == 0
    assert "why: Hybrid sharding" in screen
    assert "\x1b[" in screen  # colour, on a terminal
    assert shardguide("answers", "show", "--json").json["answers"][2]["name"]


def test_on_a_terminal_write_needs_the_word_yes(shardguide: Shardguide) -> None:
    status, _ = _terminal(shardguide, [*FULL, "--write", "out"], {"Write": "no"})
    assert status == 0 and not (shardguide.folder / "out").exists()
    status, _ = _terminal(shardguide, [*FULL, "--write", "out"], {"Write": "yes"})
    assert status == 0 and (shardguide.folder / "out" / "train_fsdp2.py").exists()
    assert shardguide(*FULL, "--json").json["approval"]["state"] == "approved"  # that yes is kept


def test_no_colour_on_request(shardguide: Shardguide) -> None:
    shardguide.env["NO_COLOR"] = "1"
    status, screen = _terminal(shardguide, FULL, {})
    assert status == 0 and "\x1b[3" not in screen and "\x1b[9" not in screen


def test_hostile_names_do_not_reach_the_terminal(shardguide: Shardguide, tmp_path: Path) -> None:
    """A model file whose name carries escapes and direction marks is shown, not obeyed."""
    name = "m\x1b]0;owned\x07\u202e.json"
    (shardguide.folder / name).write_text((Path(FULL[1]) / "config.json").read_text())
    ran = shardguide("plan", name, *FULL[2:])
    assert ran.status == 0
    assert "\x1b" not in ran.out and "\u202e" not in ran.out


def test_modules_of_the_users_folder_are_never_imported(shardguide: Shardguide) -> None:
    """``python -m`` puts the working folder on the path; a json.py or torch.py there must stay data."""
    for name in ("json", "typing", "torch", "yaml", "rich", "random", "_sha2"):
        (shardguide.folder / f"{name}.py").write_text('open("imported", "w").close()\nraise SystemExit("imported")\n')
    ran = shardguide(*FULL, "--json")
    assert ran.status == 0 and ran.json["decisions"]
    assert not (shardguide.folder / "imported").exists()
