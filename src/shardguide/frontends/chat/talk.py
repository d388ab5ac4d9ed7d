"""The conversation: from first words to an approved answer. It reads lines and shows blocks; what it says comes from workflows."""

from __future__ import annotations

import os
from collections.abc import Callable

from shardguide.frontends import conduct
from shardguide.frontends.render.blocks import Block, Heading, Items, Pairs, Text, Title
from shardguide.frontends.render.views import view_of
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.notebook import Notebook, commands
from shardguide.readers.files import HANDED
from shardguide.workflows import catalogue
from shardguide.workflows.find_out import BY_FIELD
from shardguide.workflows.intake import understand

from . import after
from .paths import with_files
from .state import State
from .words import HELP, Meaning, meaning

Read = Callable[[str, tuple[str, ...]], str]  # a prompt and what can be completed; raises EOFError at the end
Show = Callable[[list[Block]], None]

TASKS = tuple((name, catalogue.TASKS[name].what) for name in ("plan", "tune", "diagnose", "review", "migrate", "join", "backend", "init",
              "fsdp2", "explain"))  # fmt: skip


class Talk:
    """One conversation in one project folder."""

    def __init__(
        self, read: Read, show: Show, notebook: Notebook, torch: str | None, site_packages: str | None
    ) -> None:
        self.read, self.show, self.notebook = read, show, notebook
        self.site_packages = site_packages
        self.project = conduct.project()
        self.state = State()
        self.state.torch = torch or ""
        self.order: list[str] = []  # questions answered, the last one last

    # The whole ---------------------------------------------------------------------------------------------------------

    def run(self, words: str = "") -> None:
        """Until the user leaves. What was said is kept at every step. Raises EOFError and KeyboardInterrupt as ``read`` does."""
        if not words and self._resumed():
            self._task()
        elif words:
            self._first(words)
            self._task()
        while True:
            self._greet()
            self._task()

    def _greet(self) -> None:
        self.show(
            [
                Title("Shardguide. What is it about?"),
                Pairs(tuple((f"{number})", f"{name}: {what}", "") for number, (name, what) in enumerate(TASKS, 1))),
                Text("A number, or your own words. Is there a model, hardware or an error in hand? Say it, paste it, or give the path of "
                     "the file (config.json, log, code, nvidia-smi output). help shows more."),
            ]
        )  # fmt: skip
        while not self.state.task:
            self._first(self.read("> ", tuple(name for name, _ in TASKS)))

    def _first(self, line: str) -> None:
        """First words: a task of the list, or anything that the intake understands."""
        text = line.strip()
        said = meaning(text, frozenset())
        if said.kind == "quit":
            raise EOFError
        if said.kind in ("help", "skip"):
            self.show([Text(one) for one in HELP])
            return
        if text.isdigit() and 1 <= int(text) <= len(TASKS):
            self._begin(TASKS[int(text) - 1][0], {}, text)
        elif text.lower() in catalogue.TASKS:
            self._begin(text.lower(), {}, text)
        else:
            words, files = with_files(text)
            try:
                found = understand(words, files, self.state.torch or None)
            except UnusableInput as error:
                self.show([Text(str(error))])
                return
            known = ", ".join(
                f"{name} = {value}" for name, value in found.arguments.items() if name not in ("question", "text")
            )
            others = f" (or is it {', '.join(found.others)}? Say new.)" if found.others else ""
            self.show([Text(f"I take this as: {found.tool}{f', with {known}' if known else ''}.{others}")])
            self._begin(found.tool, found.arguments, words)

    def _begin(self, task: str, arguments: dict[str, Any], words: str) -> None:
        torch, pasted = self.state.torch, self.state.pasted
        self.state = State()
        self.state.task, self.state.arguments, self.state.words = task, dict(arguments), words
        self.state.torch, self.state.pasted = torch, pasted
        if torch:
            self.state.arguments.setdefault("torch", torch)
        self.order = []
        self._keep()

    def _keep(self) -> None:
        self.notebook.keep_conversation(self.project, self.state.plain())

    def _resumed(self) -> bool:
        kept = State.of(self.notebook.conversation(self.project))
        if kept is None or not kept.task:
            return False
        known = ", ".join(f"{name} = {value}" for name, value in list(kept.arguments.items())[:8])
        self.show([Text(f"Last time {kept.task} was left open{f' ({known})' if known else ''}.")])
        answer = meaning(self.read("Go on with it? (yes, no) ", ("yes", "no")), frozenset())
        if answer.kind == "quit":
            raise EOFError
        if answer.kind not in ("yes", "skip"):
            self.notebook.keep_conversation(self.project, None)
            return False
        self.state = kept
        return True

    def _end(self) -> None:
        self.notebook.keep_conversation(self.project, None)
        torch, self.state = self.state.torch, State()
        self.state.torch = torch

    # One task ------------------------------------------------------------------------------------------------------------

    def _task(self) -> None:
        """Questions, answer, follow-ups, confirmation."""
        if not self._needs():
            return
        first = True
        while self.state.task:
            if not self._work():
                return
            if first:
                self._remembered()
                first = False
            question = self._open()
            if question is not None:
                self._question(question)
            else:
                self._answered()

    def _needs(self) -> bool:
        """What a workflow cannot begin without, and has no question of its own for. False where the task was left."""
        asked = {
            "diagnose": (
                "question",
                "What happens? Paste the error or the log, say it in words, or give the path of the logs.",
            ),
            "review": ("paths", "Which code? Give the path of a file or a folder."),
            "migrate": ("paths", "Which code? Give the path of a file or a folder."),
            "explain": ("topic", "Which subject? An id or words; the list is shown by shardguide explain."),
            "ask": ("question", "What do you want to know?"),
        }.get(self.state.task)
        if asked is None:
            return True
        name, words = asked
        have = self.state.arguments
        while not any(have.get(one) for one in (name, "text", "paths", "full_script")):
            line = self.read(f"{words}\n> ", ()).strip()
            said = meaning(line, frozenset())
            if said.kind in ("quit", "new"):
                self._left(said)
                return False
            if not line:
                continue
            text, files = with_files(line)
            if self.state.task == "diagnose":
                have.update(understand(text or "error", files).arguments)
                if not text:
                    have.pop("question", None)
            elif name == "paths":
                have["paths"] = list(files) or [line]
            else:
                have[name] = line
            self._keep()
        return True

    def _left(self, said: Meaning) -> None:
        if said.kind == "quit":
            raise EOFError
        self._end()

    def _work(self) -> bool:
        """Run the workflow with what is known. False where it refused and the task was given up."""
        while True:
            handed = HANDED.set({name: text.encode() for name, text in self.state.pasted.items()})
            try:
                self.state.record = conduct.conduct(
                    lambda remembered: catalogue.run(
                        self.state.task, self.state.arguments, remembered, self.site_packages
                    ),
                    self.notebook,
                )
                self.state.id = self.state.record["id"]
                self._keep()
                return True
            except UnusableInput as error:
                self.show([Text(str(error))])
                if not self._undo():
                    self._end()
                    return False
            finally:
                HANDED.reset(handed)

    def _undo(self) -> bool:
        """Take back the answer that was refused: the last one given."""
        while self.order:
            name = self.order.pop()
            if name in self.state.arguments:
                del self.state.arguments[name]
                return True
        return False

    def _remembered(self) -> None:
        """What the notebook knows, before anything is asked; and that this was answered before, where it was."""
        kept = {name: one["value"] for name, one in self.state.record["answers"].items() if one["from"] == "notebook"}
        if kept:
            known = ", ".join(f"{name} = {value}" for name, value in kept.items())
            self.show([Text(f"Known from before: {known}. NAME = VALUE corrects it.")])
        earlier = next((one for one in self.notebook.history(self.project, 200) if one.id == self.state.id), None)
        if earlier is not None and earlier.times > 1 and not self.state.record["questions"]:
            state = "" if earlier.state == "draft" else f", {earlier.state}"
            self.show([Text(f"This was asked {earlier.times} times here; the answer is the same as before{state}.")])

    def _open(self) -> dict[str, Any] | None:
        return next((one for one in self.state.record["questions"] if one["id"] not in self.state.skipped), None)

    # A question ----------------------------------------------------------------------------------------------------------

    def _question(self, question: dict[str, Any]) -> None:
        choices = [str(one) for one in question["choices"]]
        numeric = bool(choices) and all(one.isdigit() for one in choices)
        out: list[Block] = [Heading(question["ask"]), Text(f"Why: {question['why']}")]
        if numeric:
            out.append(Text(f"For example: {', '.join(choices)}"))
        elif choices:
            out.append(Pairs(tuple((f"{number})", one, "") for number, one in enumerate(choices, 1))))
        self.show(out)
        while True:
            line = self.read(f"{question['id']} (? if you don't know) > ", tuple(choices))
            said = meaning(line, self._names())
            text = line.strip()
            if said.kind == "unknown":
                self._how(question["id"])
                continue
            if said.kind == "skip":
                self.state.skipped.append(question["id"])
                self._keep()
                return
            if said.kind in ("quit", "new"):
                self._left(said)
                return
            if said.kind == "back":
                if not self._undo():
                    self.show([Text("This is the first question.")])
                    continue
                return
            if said.kind == "change":
                self._changed(said)
                return
            if said.kind in ("help", "known"):
                self.show(self.known() if said.kind == "known" else [Text(one) for one in HELP])
                continue
            if choices and not numeric and text.isdigit() and 1 <= int(text) <= len(choices):
                text = choices[int(text) - 1]
            self._given(question["id"], text)
            return

    def _given(self, name: str, text: str) -> None:
        """An answer: a value, the output of a command that was pasted, or the path of a file with it."""
        taken = "from" in catalogue.TASKS[self.state.task].more and (
            "\n" in text
            or (os.path.isfile(text) and name in BY_FIELD and name not in ("model", "current", "path", "tp_plan"))  # noqa: PTH113
        )
        if name == "current" and self.state.task == "tune" and "=" in text and "\n" not in text:
            self.state.arguments["now"] = [*self.state.arguments.get("now", []), *text.replace(",", " ").split()]
        elif taken:
            source = text
            if "\n" in text:
                source = f"pasted-{len(self.state.pasted) + 1}"
                self.state.pasted[source] = text
            self.state.arguments["from"] = [*self.state.arguments.get("from", []), source]
            name = "from"
        else:
            self.state.arguments[name] = text
        self.order.append(name)
        self._keep()

    def _how(self, name: str) -> None:
        found = BY_FIELD.get(name)
        if found is None:
            self.show([Text("Enter leaves it open; the answer then says what depends on it.")])
            return
        back = " Its output can be pasted here, or given as the path of a file." if found.pasted else ""
        self.show(
            [Text(f"To find out, run: {found.command}"), Text(f"Then: {found.reads}.{back} Enter leaves it open.")]
        )

    def _names(self) -> frozenset[str]:
        return frozenset(catalogue.arguments_of(catalogue.TASKS[self.state.task])) if self.state.task else frozenset()

    def _changed(self, said: Meaning) -> None:
        self.state.arguments[said.name] = said.value
        if said.name in self.state.skipped:
            self.state.skipped.remove(said.name)
        self.order.append(said.name)
        self._keep()
        self.show([Text(f"{said.name} is now {said.value}.")])

    def known(self) -> list[Block]:
        """What is known, and from where."""
        rows = tuple(
            (name, f"{one['value']} (from {one['from']})", "")
            for name, one in self.state.record.get("answers", {}).items()
        )
        return [Heading("Known; NAME = VALUE corrects it"), Pairs(rows)] if rows else [Text("Nothing is known yet.")]

    # The answer ----------------------------------------------------------------------------------------------------------

    def _answered(self) -> None:
        """Show the answer, then take follow-ups until it is confirmed, left or changed."""
        record = self.state.record
        self.show(view_of(record["workflow"])(record, False))
        while True:
            asked = record["approval"]["asked"]
            waiting = asked and record["approval"]["state"] == "draft"
            choices = f"{asked} yes, no or draft; NAME = VALUE; or ask on."
            self.show([Text(choices if waiting else "Anything else on this? draft ends it; or ask on.")])
            line = self.read("> ", ("yes", "no", "draft", "why not ", "sources", "show ", "known", "help"))
            said = meaning(line, self._names())
            if said.kind in ("quit", "new"):
                self._left(said)
                return
            if said.kind in ("yes", "no", "draft", "skip"):
                self._confirmed(said.kind)
                return
            if said.kind in ("change", "release", "form", "back"):
                if self._again(said):
                    return
                continue
            after.follow(self, said, line)

    def _confirmed(self, kind: str) -> None:
        record = self.state.record
        try:
            if kind == "yes":
                commands.approve(self.notebook, record["id"])
                self.show([Text(f"Approved: {record['id']}.")])
            elif kind == "no":
                commands.reject(self.notebook, record["id"])
                self.show([Text(f"Turned down: {record['id']}.")])
            else:
                self.show(
                    [Text(f"Left as a draft: {record['id']} (shardguide approve {record['id']} confirms it later).")]
                )
        except UnusableInput as error:
            self.show([Text(str(error))])
        done, left = record["done"], record["not_done"]
        out: list[Block] = [Heading("Done"), Items(tuple(done))] if done else []
        out += [Heading("Not done"), Items(tuple(left))] if left else []
        self.show(out)
        self._end()

    def _again(self, said: Meaning) -> bool:
        """Another answer with something changed; True where the workflow is to be run again."""
        if said.kind == "change":
            self._changed(said)
        elif said.kind == "release":
            self.state.arguments["torch"] = said.value
            self.order.append("torch")
        elif said.kind == "back":
            if not self._undo():
                self.show([Text("There is no answer to go back to.")])
                return False
        elif self.state.task == "plan" and said.value in ("fsdp1", "accelerate", "torchtitan"):
            self.state.arguments["also"] = [said.value]
        elif self.state.task == "explain" and said.value in ("fsdp1", "fsdp2", "ddp"):
            self.state.arguments["form"] = said.value
        else:
            self.show([Text(f"{self.state.task} has no {said.value} form.")])
            return False
        self.state.skipped = []
        self._keep()
        return True
