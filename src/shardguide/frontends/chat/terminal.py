"""Reading lines on a terminal with prompt_toolkit: editing, completion, history, and pastes of many lines as one answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.shortcuts import CompleteStyle

from . import lines

_ALWAYS = ("help", "known", "back", "new", "quit", "?")


class _Shared(InMemoryHistory):
    """The lines of before, and what is typed now: one line each, since a pasted log is no command to call back."""

    def append_string(self, string: str) -> None:
        if string.strip() and "\n" not in string and len(string) <= 500:
            super().append_string(string)


def reader(earlier: tuple[str, ...], colour: bool) -> Callable[[str, tuple[str, ...]], str]:
    """A function that reads one answer. ``earlier``: lines of before, for the history, the latest last.

    Ctrl-C raises KeyboardInterrupt, Ctrl-D EOFError.
    """
    history = _Shared(list(earlier))
    session: PromptSession[str] = PromptSession(
        history=history,
        color_depth=None if colour else ColorDepth.DEPTH_1_BIT,
        enable_history_search=True,
        complete_while_typing=False,
        complete_style=CompleteStyle.READLINE_LIKE,  # a list below the line, in the order in which it is read aloud
    )

    def read(prompt: str, completions: tuple[str, ...]) -> str:
        line = session.prompt(prompt, completer=_Completer(completions))
        return line + _arrived(session, line)

    return read


def _arrived(session: PromptSession[str], line: str) -> str:
    """The lines that came together with the one that was read: a paste, where the terminal does not say that it is one.

    One or two short ones may be answers that were typed ahead, and are left for the next prompts.
    """
    keys = get_typeahead(session.app.input)
    text = "".join(one.data for one in keys).replace("\r\n", "\n").replace("\r", "\n")
    pasted = text.count("\n") > 2 or max(map(len, (line, *text.split("\n")))) > 60
    if "\n" not in text or not pasted or not text.replace("\n", "").replace("\t", "").isprintable():
        store_typeahead(session.app.input, keys)  # a key or two, for the next prompt
        return ""
    return f"\n{text.rstrip()}" + lines.waiting(session.app.input.fileno())


class _Completer(Completer):
    """What the conversation offers, for the whole line; and paths, for its last word."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.offered = list(dict.fromkeys((*words, *_ALWAYS)))
        self.paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        line = document.text_before_cursor.lstrip()
        low = line.lower()
        first = [one for one in self.offered if one.lower().startswith(low)]
        inside = [one for one in self.offered if len(low) > 1 and low in one.lower() and one not in first]
        for one in (*first, *inside):
            yield Completion(one, -len(line))
        word = line.rpartition(" ")[2].lstrip("\"'")
        if len(word) > 1 and ("/" in word or word.startswith((".", "~")) or not (first or inside)):
            yield from self.paths.get_completions(Document(word, len(word)), complete_event)
