"""The conversation: from first words to an approved answer. It reads lines and shows blocks; what it says comes from workflows."""

from __future__ import annotations

from collections.abc import Callable

from shardguide.frontends import conduct, earlier
from shardguide.frontends.render.blocks import Block, Heading, Items, Pairs, Text, Title
from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.notebook import Notebook, commands
from shardguide.readers.files import HANDED
from shardguide.workflows import catalogue

from . import after, asking, first, needs, places, replies, spoken, turns
from .state import State
from .words import Meaning, meaning

Read = Callable[[str, tuple[str, ...]], str]  # a prompt and what can be completed; raises EOFError at the end
Show = Callable[[list[Block]], None]


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
        self.steps: list[turns.Step] = []  # what was given, the last one last
        self.turn = 0  # answers shown in this task
        self.last: dict[str, Any] = {}  # the answer of the task before, which apply writes
        self.offered: tuple[str, dict[str, Any], str] = ("", {}, "")  # another task for words that were said here
        self.shown: dict[str, Any] = {}  # the answer of this task that was shown last
        self.unclear: tuple[str, tuple[str, ...]] = ("", ())  # words and files whose task is not known yet
        self.seen: set[str] = set()  # answers of this conversation, by their ids
        self.form = ""  # the form of the code that was asked for

    # The whole ---------------------------------------------------------------------------------------------------------

    def run(self, words: str = "") -> None:
        """Until the user leaves. What was said is kept at every step. Raises EOFError and KeyboardInterrupt as ``read`` does."""
        words = words or self._resumed()
        if words:
            first.line(self, words)
        if words or self.state.task:
            self._task()
        while True:
            self._greet()
            self._task()

    def _greet(self) -> None:
        self.show(
            [
                Title("Shardguide. What is it about?"),
                first.tasks(),
                Text("A number, or your own words. Is there a model, hardware or an error in hand? Say it, paste it, or give the path of "
                     "the file (config.json, log, code, nvidia-smi output). help shows more."),
            ]
        )  # fmt: skip
        while not self.state.task:
            said = self.read("> ", tuple(name for name, _ in first.TASKS))
            try:
                first.line(self, said)
            except UnusableInput as error:
                self.show([Text(spoken.error(str(error)))])

    def begin(self, task: str, arguments: dict[str, Any], words: str) -> None:
        """Take a task up."""
        torch, pasted = self.state.torch, self.state.pasted
        self.state = State()
        self.state.task, self.state.arguments, self.state.words = task, dict(arguments), words
        self.state.torch, self.state.pasted = torch, pasted
        if torch:
            self.state.arguments.setdefault("torch", torch)
        self.steps, self.turn, self.shown = [], 0, {}
        self.offered = ("", {}, "")
        self.keep()

    def keep(self) -> None:
        """Keep where the conversation stands."""
        self.place.keep(None if self.state.settled else self.state.plain())

    def _resumed(self) -> str:
        """Offer what was left open, the latest first; one that another process is talking about is left to it.

        Where something else is said than yes or no, that is returned, and what was left open stays so.
        """
        for name, plain in self.place.open():
            kept = State.of(plain)
            if kept is None or not kept.task:
                continue
            known = replies.listed(dict(list(kept.arguments.items())[:8]))
            self.show([Text(f"Last time {kept.task} was left open{f' ({known})' if known else ''}.")])
            while True:
                line = self.read("Go on with it? (yes, no) ", ("yes", "no"))
                answer = meaning(line, frozenset())
                if answer.kind == "quit":
                    raise EOFError
                if answer.kind == "other" and (len(line.split()) > 2 or line.strip().lower() in catalogue.TASKS):
                    self.show([Text(f"{kept.task} stays open for another time.")])
                    return line
                if answer.kind in ("yes", "skip", "no", "new"):
                    break
                self.show(
                    [Text("yes goes on with it; no drops it (its answers and guidance are kept in the notebook).")]
                )
            if answer.kind in ("yes", "skip"):
                self.state = kept
                self.seen.add(kept.id)
                self.keep()
                self.place.drop(name)
                break
            self.place.drop(name)
        return ""

    def end(self) -> None:
        """The task is over."""
        self.place.keep(None)
        torch, self.state = self.state.torch, State()
        self.state.torch = torch

    # One task ------------------------------------------------------------------------------------------------------------

    def _task(self) -> None:
        """Questions, answer, follow-ups, confirmation."""
        if not needs.met(self):
            return
        new = True
        while self.state.task:
            if not self._work():
                return
            if new:
                self._remembered()
                new = False
            question = self._open()
            if question is not None:
                asking.question(self, question)
            else:
                self._answered()

    def left(self, said: Meaning) -> None:
        """The user leaves the task, or the conversation."""
        if said.kind == "quit":
            raise EOFError
        self.end()

    def _work(self) -> bool:
        """Run the workflow with what is known. False where it refused and the task was given up."""
        while True:
            handed = HANDED.set({name: text.encode() for name, text in self.state.pasted.items()})
            try:
                self.state.record = conduct.conduct(
                    lambda remembered: catalogue.run(
                        self.state.task,
                        self.state.arguments,
                        {name: value for name, value in remembered.items() if name not in self.state.unread},
                        self.site_packages,
                    ),
                    self.notebook,
                )
                turns.leave_known(self)
                if self.state.record.get("earlier", {}).get("id") in self.seen:
                    del self.state.record["earlier"]  # this very conversation's
                self.seen.add(self.state.record["id"])
                self.state.id = self.state.record["id"]
                self.keep()
                return True
            except UnusableInput as error:
                self.show([Text(spoken.error(str(error)))])
                if not self.undo() and not needs.again(self):
                    self.end()
                    return False
            finally:
                HANDED.reset(handed)

    def undo(self, whole: bool = False) -> bool:
        """Take back what was given last: what was there before it is there again. ``whole``: all that led to the answer shown."""
        said = turns.undo(self, whole)
        if said:
            self.show([Text(said)])
        return bool(said)

    def give(self, arguments: dict[str, Any], trial: bool | None = None) -> None:
        """Take arguments; see ``turns.give``."""
        turns.give(self, arguments, trial)
        self.keep()

    def handed(self, output: str) -> str:
        """The name under which a workflow reads an output: a file's path, or one for what was pasted."""
        if "\n" not in output and "," not in output:
            return output
        name = f"pasted-{len(self.state.pasted) + 1}"
        self.state.pasted[name] = output
        return name

    def _remembered(self) -> None:
        """What the notebook knows, before anything is asked."""
        kept = {name: one["value"] for name, one in self.state.record["answers"].items() if one["from"] == "notebook"}
        if kept:
            known = ", ".join(f"{name} = {spoken.shown(value)}" for name, value in kept.items())
            self.show([Text(f"Known from before: {known}. NAME = VALUE corrects it.")])

    def _open(self) -> dict[str, Any] | None:
        if self.state.task == "diagnose":
            return None  # what would tell more stands in the answer, and can be given below it
        return next((one for one in self.state.record["questions"] if one["id"] not in self.state.skipped), None)

    # A question ----------------------------------------------------------------------------------------------------------

    def names(self) -> frozenset[str]:
        """What NAME = VALUE can correct."""
        return frozenset(catalogue.arguments_of(catalogue.TASKS[self.state.task])) if self.state.task else frozenset()

    def changed(self, said: Meaning) -> bool:
        """Correct an answer; False where the value cannot be one."""
        first, *others = replies.parts(said.value)
        given: dict[str, Any] = {}
        told = []
        for name, value in ((said.name, first), *others):
            if name not in self.names():
                self.show([Text(f"{self.state.task} has no {name}.")])
                return False
            found = replies.reply(self.state.task, {"id": name, "choices": ()}, value)
            if found.wrong or not (found.arguments or found.output):
                self.show([Text(spoken.error(found.wrong or f"{value} is no value of {name}."))])
                return False
            got = found.arguments or {"from": [*self.state.arguments.get("from", []), self.handed(found.output)]}
            given |= replies.added(self.state.arguments, got, said.value)
            told.append(f"{name} is now {spoken.shown(given.get(name, value))}")
        told += [f"{name} = {spoken.shown(it)}" for name, it in given.items() if f"{name} is now" not in " ".join(told)]
        self.give(given, trial=False)
        self.show([Text(f"{', '.join(told)}.")])
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
        self.turn += 1
        self.show(after.answer(self))
        if "earlier" in record:
            self.show(earlier.page(record["earlier"]))
        put = after.ending(record)
        while True:
            self.show([Text(put)])
            put = after.again(self)
            line = self.read("> ", after.completions(record))
            said = meaning(line, self.names())
            if said.kind in ("quit", "new"):
                self.left(said)
                return
            if said.kind in ("yes", "no", "draft"):
                if self._confirmed(said.kind):
                    return
                continue
            if line.strip().lower() in catalogue.TASKS:
                self._instead_of_it(line.strip().lower())
                return
            if said.kind in ("change", "release", "form", "back"):
                if self._again(said):
                    return
                continue
            if said.kind in ("other", "change") and self._instead(line):
                return
            after.follow(self, said, line)

    def _instead(self, line: str) -> bool:
        """The same with something else: what if 64 GPUs. True where the workflow is to be run again."""
        try:
            found = after.evidence(self, line) or after.other_facts(self, line)
        except UnusableInput as error:
            self.show([Text(spoken.error(str(error)))])
            return False
        if not found:
            return False
        self._tried(found)
        return True

    def _tried(self, found: dict[str, Any]) -> None:
        """The same with something else, for a try."""
        self.give(found, trial=True)
        self.state.skipped = []
        kept = [one for one in found if one in conduct.REMEMBERED]
        try_ = " It is a try: what is remembered stays as it was until you approve this." if kept else ""
        self.show([Text(f"Now {replies.stating(found)}; back takes that back.{try_}")])

    def _instead_of_it(self, task: str) -> None:
        """Another task: the one that was offered for words said here, with what they state, or any that is named."""
        offered, arguments, words = self.offered
        self.last = self.state.record
        self.end()
        self.begin(task, arguments if task == offered else {}, words if task == offered else "")

    def _confirmed(self, kind: str) -> bool:
        """Take a yes, a no or a draft; False where it answers nothing that was asked, or was refused."""
        record = self.state.record
        asked, state = record["approval"]["asked"], record["approval"]["state"]
        if kind == "yes" and self.state.settled:
            self.show([Text(f"Approved: {record['id']}, by the yes to writing it.")])
            kind = "draft"
        elif kind == "yes" and (not asked or state == "approved"):
            already = "It is approved already" if state == "approved" else "Nothing here waits for a yes"
            self.show([Text(f"{already}: ask on, or draft ends it.")])
            return False
        try:
            if kind == "yes":
                commands.approve(self.notebook, record["id"])
                turns.confirm(self)
                writes = " apply writes its files." if after.writes(record) else ""
                self.show([Text(f"Approved: {record['id']}.{writes}")])
            elif kind == "no" and asked and not self.state.settled:
                commands.reject(self.notebook, record["id"])
                self.show([Text(f"Turned down: {record['id']}.")])
            elif not asked or state != "draft":
                kind = "draft"
                self.show([Text(f"Kept in the history as {record['id']}.")])
            else:
                self.show(
                    [Text(f"Left as a draft: {record['id']} (shardguide approve {record['id']} confirms it later).")]
                )
        except UnusableInput as error:
            self.show([Text(str(error))])
            return False
        self.last = record
        done, left = self._done(kind), record["not_done"]
        out: list[Block] = [Heading("Done"), Items(tuple(done))] if done else []
        out += [Heading("Not done"), Items(tuple(left))] if left else []
        self.show(out)
        self.end()
        return True

    def _done(self, kind: str) -> list[str]:
        """What was done in this task: the answer's own part, what was written, what was confirmed."""
        if self.state.record["status"] == "needs_answers":
            return [*self.state.record["done"], *self.state.written]  # what is open stands in not_done
        approval = self.state.record["approval"]
        draft = (
            {"draft": "left as a draft"}.get(approval["state"], approval["state"]) if approval["asked"] else "answered"
        )
        state = {"yes": "approved", "no": "turned down"}.get(kind, draft)
        return [*self.state.record["done"], *self.state.written, f"{self.state.task}: {state}"]

    def _again(self, said: Meaning) -> bool:
        """Another answer with something changed; True where the workflow is to be run again."""
        if said.kind == "change":
            if not self.changed(said):
                return False
        elif said.kind == "release":
            if said.value == after.release(self):
                self.show([Text(f"This is for PyTorch {said.value}.")])
                return False
            self._tried({"torch": said.value})
        elif said.kind == "back":
            if self.state.settled:
                self.show(after.taken_back(self))
                return False
            if not self.undo(whole=True):
                self.show([Text("There is no answer to go back to.")])
                return False
        elif self.state.task == "plan" and said.value in ("fsdp1", "accelerate", "torchtitan"):
            self.form = said.value
            self.give({"also": [said.value]})
        elif self.state.task == "explain" and said.value in ("fsdp1", "fsdp2", "ddp"):
            self.form = said.value
            self.give({"form": said.value})
        else:
            self.show([Text(f"{self.state.task} has no {said.value} form.")])
            return False
        self.state.skipped = []
        self.keep()
        return True
