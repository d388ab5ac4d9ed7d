"""Reading lines on a terminal with prompt_toolkit: editing, completion, history, and pastes of many lines as one answer."""

from __future__ import annotations

from collections.abc import Callable

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, FuzzyWordCompleter, PathCompleter, WordCompleter, merge_completers
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.output import ColorDepth

_ALWAYS = ("help", "known", "back", "new", "quit", "?")
_PATHS = ("./", "../", "/", "~")


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
    )

    def read(prompt: str, completions: tuple[str, ...]) -> str:
        return session.prompt(prompt, completer=_completer(completions))

    return read


def _completer(words: tuple[str, ...]) -> Completer:
    offered = list(dict.fromkeys((*words, *_ALWAYS)))
    first: Completer = FuzzyWordCompleter(offered) if words else WordCompleter(offered)
    return merge_completers([first, PathCompleter(expanduser=True, min_input_len=2)])
