"""The conversation: from first words to an approved answer. It reads lines and shows blocks; what it says comes from workflows."""

from __future__ import annotations

import re
from collections.abc import Callable

from shardguide.frontends import conduct, earlier
from shardguide.frontends.render.blocks import Block, Code, Heading, Items, Pairs, Text, Title
from shardguide.frontends.render.views import view_of
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.notebook import Notebook, commands
from shardguide.readers.files import HANDED
from shardguide.workflows import catalogue
from shardguide.workflows import find_out
from shardguide.workflows.intake import understand
from shardguide.workflows.remembered import superseded

from . import after, places, replies, spoken
from .paths import with_files
from .state import State
from .words import HELP, Meaning, asks, meaning

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
        self.place = places.Place(notebook, self.project)
        self.state = State()
        self.state.torch = torch or ""
        self.order: list[tuple[str, Any]] = []  # arguments given, the last one last, each with what it was before
        self.before: earlier.Earlier | None = None  # the same request, answered at another time

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
            said = {name: one for name, one in found.arguments.items() if name not in ("question", "text")}
            known = f", with {replies.listed(said)}" if said else ""
            others = f" (or is it {' or '.join(found.others)}? Say new.)" if found.others else ""
            self.show([Text(f"I take this as: {found.tool} ({catalogue.TASKS[found.tool].what}){known}.{others}")])
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
        self.place.keep(self.state.plain())

    def _resumed(self) -> bool:
        """Offer what was left open, the latest first; one that another process is talking about is left to it."""
        for name, plain in self.place.open():
            kept = State.of(plain)
            if kept is None or not kept.task:
                continue
            known = replies.listed(dict(list(kept.arguments.items())[:8]))
            self.show([Text(f"Last time {kept.task} was left open{f' ({known})' if known else ''}.")])
            while True:
                answer = meaning(self.read("Go on with it? (yes, no) ", ("yes", "no")), frozenset())
                if answer.kind == "quit":
                    raise EOFError
                if answer.kind in ("yes", "skip", "no", "new"):
                    break
                self.show([Text("yes goes on with it; no drops it (its answers and guidance are kept in the notebook).")])
            if answer.kind in ("yes", "skip"):
                self.state = kept
                self._keep()
                self.place.drop(name)
                return True
            self.place.drop(name)
        return False

    def _end(self) -> None:
        self.place.keep(None)
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
            if said.kind == "back":
                self._end()
                return False
            if not line or said.kind in ("help", "unknown", "known"):
                self.show([Text(_BEGIN.get(self.state.task, HELP[0]))])
                continue
            try:
                self._begun(name, line)
            except UnusableInput as error:
                self.show([Text(spoken.error(str(error)))])
            self._keep()
        return True

    def _begun(self, name: str, line: str) -> None:
        have = self.state.arguments
        text, files = with_files(line)
        if self.state.task == "diagnose":
            found = understand(text or "error", files).arguments
            have.update({one: found[one] for one in ("question", "text", "paths", "code", "torch") if one in found})
            if not text:
                have.pop("question", None)
            elif not any(one in have for one in ("question", "text")):
                have["question"] = text
        elif name == "paths" and ("\n" in line and not files):
            if "text" in catalogue.TASKS[self.state.task].more:
                have["text"] = line
            else:
                self.show([Text("Pasted code is not turned; give the path of its file.")])
        elif name == "paths":
            have["paths"] = list(files) or [line]
        else:
            have[name] = line

    def _left(self, said: Meaning) -> None:
        if said.kind == "quit":
            raise EOFError
        self._end()

    def _work(self) -> bool:
        """Run the workflow with what is known. False where it refused and the task was given up."""
        while True:
            handed = HANDED.set({name: text.encode() for name, text in self.state.pasted.items()})
            try:
                key = earlier.request(
                    self.state.task, self.state.arguments, conduct.remembered(self.notebook), self.project
                )
                self.before = earlier.find(self.notebook, key)
                self.state.record = conduct.conduct(
                    lambda remembered: catalogue.run(
                        self.state.task, self.state.arguments, remembered, self.site_packages
                    ),
                    self.notebook,
                    key,
                )
                if self.before is not None and self.before.id == self.state.id:
                    self.before = None  # this very conversation's
                self.state.id = self.state.record["id"]
                self._keep()
                return True
            except UnusableInput as error:
                self.show([Text(spoken.error(str(error)))])
                if not self._undo():
                    self._end()
                    return False
            finally:
                HANDED.reset(handed)

    def _undo(self) -> bool:
        """Take back the last answer given: what was there before it is there again."""
        while self.order:
            name, was = self.order.pop()
            if name not in self.state.arguments:
                continue
            if was is None:
                del self.state.arguments[name]
            else:
                self.state.arguments[name] = was
            return True
        return False

    def give(self, arguments: dict[str, Any]) -> None:
        """Take arguments; what they make worthless (the nodes of another number of GPUs) goes."""
        have = self.state.arguments
        gone = [one for one in superseded(arguments, have) if one in have and one not in arguments]
        for name in gone:
            del have[name]
        for name, value in arguments.items():
            self.order.append((name, have.get(name)))
            have[name] = value
            if name in self.state.skipped:
                self.state.skipped.remove(name)
        self._keep()

    def _remembered(self) -> None:
        """What the notebook knows, before anything is asked."""
        kept = {name: one["value"] for name, one in self.state.record["answers"].items() if one["from"] == "notebook"}
        if kept:
            known = ", ".join(f"{name} = {spoken.shown(value)}" for name, value in kept.items())
            self.show([Text(f"Known from before: {known}. NAME = VALUE corrects it.")])

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
            if said.kind == "unknown":
                self._how(question)
            elif said.kind == "skip":
                self.state.skipped.append(question["id"])
                self._keep()
                return
            elif said.kind in ("quit", "new"):
                self._left(said)
                return
            elif said.kind == "back":
                if self._undo():
                    return
                self.show([Text("This is the first question.")])
            elif said.kind == "change":
                if self._changed(said):
                    return
            elif said.kind in ("help", "known"):
                self.show(self.known() if said.kind == "known" else [Text(one) for one in HELP])
            elif said.kind == "why":
                self.show([Text(f"Why this is asked: {question['why']}")] if not said.value else after.asked(self, line))
            elif self._given(question, line):
                return

    def _given(self, question: dict[str, Any], line: str) -> bool:
        """Take the answer to a question; False where the line was none."""
        found = replies.reply(self.state.task, question, line)
        if found.output:
            source = found.output
            if "\n" in source or "," in source:
                source = f"pasted-{len(self.state.pasted) + 1}"
                self.state.pasted[source] = found.output
            self.give({"from": [*self.state.arguments.get("from", []), source]})
            return True
        if "now" in found.arguments:
            self.give({"now": [*self.state.arguments.get("now", []), *found.arguments["now"]]})
            return True
        if found.note:
            self.show([Text(found.note)])
        if found.arguments:
            self.give(found.arguments)
            return True
        self.show([Text(spoken.error(found.wrong))] if found.wrong else after.asked(self, line))
        return False

    def _how(self, question: dict[str, Any]) -> None:
        device = self.state.record["answers"].get("device", {}).get("value", "")
        found = find_out.how(question["id"], str(device))
        if found is None:
            self.show([Text(f"{question['why']} Enter leaves it open; the answer then says what depends on it.")])
            return
        back = " Its output can be pasted here, or given as the path of a file." if found.pasted else ""
        self.show(
            [
                Text("To find out, run:"),
                Code("bash", found.command),
                Text(f"Then: {found.reads}.{back} Enter leaves it open."),
            ]
        )

    def _names(self) -> frozenset[str]:
        return frozenset(catalogue.arguments_of(catalogue.TASKS[self.state.task])) if self.state.task else frozenset()

    def _changed(self, said: Meaning) -> bool:
        """Correct an answer; False where the value cannot be one."""
        name, value = said.name, said.value.strip("\"'`")
        found = replies.reply(self.state.task, {"id": name, "choices": ()}, value)
        if found.wrong or not (found.arguments or found.output):
            self.show([Text(spoken.error(found.wrong or f"{value} is no value of {name}."))])
            return False
        given = found.arguments or {"from": [*self.state.arguments.get("from", []), found.output]}
        self.give(given)
        self.show([Text(f"{name} is now {spoken.shown(given.get(name, value))}.")])
        return True

    def known(self) -> list[Block]:
        """What is known, and from where."""
        answers = self.state.record.get("answers", {})
        rows = tuple((name, f"{one['value']} (from {one['from']})", "") for name, one in answers.items())
        rows += tuple(
            (name, f"{spoken.shown(value)} (from you)", "")
            for name, value in self.state.arguments.items()
            if name not in answers
        )
        return [Heading("Known; NAME = VALUE corrects it"), Pairs(rows)] if rows else [Text("Nothing is known yet.")]

    # The answer ----------------------------------------------------------------------------------------------------------

    def _answered(self) -> None:
        """Show the answer, then take follow-ups until it is confirmed, left or changed."""
        record = self.state.record
        self.show(spoken.page(view_of(record["workflow"])(record, False)))
        if self.before is not None and self.before.record.get("status") != "needs_answers":
            self.show([Text(earlier.compared(self.before, record))])
            self.before = None
        while True:
            asked = record["approval"]["asked"]
            waiting = asked and record["approval"]["state"] == "draft"
            choices = f"{asked} yes, no or draft; NAME = VALUE; or ask on."
            self.show([Text(choices if waiting else "Anything else on this? draft ends it; or ask on.")])
            line = self.read("> ", after.completions(record))
            said = meaning(line, self._names())
            if said.kind in ("quit", "new"):
                self._left(said)
                return
            if said.kind in ("yes", "no", "draft"):
                self._confirmed(said.kind)
                return
            if said.kind in ("change", "release", "form", "back"):
                if self._again(said):
                    return
                continue
            if said.kind == "other" and self._instead(line):
                return
            after.follow(self, said, line)

    def _instead(self, line: str) -> bool:
        """The same with something else: what if 64 GPUs. True where the workflow is to be run again."""
        found = after.other_facts(self, line)
        if not found:
            return False
        self.give(found)
        self.state.skipped = []
        self.show([Text(f"Now with {replies.listed(found)}; back takes that back.")])
        return True

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
        done, left = self._done(kind), record["not_done"]
        out: list[Block] = [Heading("Done"), Items(tuple(done))] if done else []
        out += [Heading("Not done"), Items(tuple(left))] if left else []
        self.show(out)
        self._end()

    def _done(self, kind: str) -> list[str]:
        """What was done in this task: the answer's own part, what was written, what was confirmed."""
        state = {"yes": "approved", "no": "turned down"}.get(kind, "left as a draft")
        return [*self.state.record["done"], *self.state.written, f"{self.state.task}: {state}"]

    def _again(self, said: Meaning) -> bool:
        """Another answer with something changed; True where the workflow is to be run again."""
        if said.kind == "change":
            if not self._changed(said):
                return False
        elif said.kind == "release":
            self.give({"torch": said.value})
        elif said.kind == "back":
            if not self._undo():
                self.show([Text("There is no answer to go back to.")])
                return False
        elif self.state.task == "plan" and said.value in ("fsdp1", "accelerate", "torchtitan"):
            self.give({"also": [said.value]})
        elif self.state.task == "explain" and said.value in ("fsdp1", "fsdp2", "ddp"):
            self.give({"form": said.value})
        else:
            self.show([Text(f"{self.state.task} has no {said.value} form.")])
            return False
        self.state.skipped = []
        self._keep()
        return True
