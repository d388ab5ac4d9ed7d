"""Where a conversation stands: plain JSON, kept in the notebook after every answer, so that nothing is lost."""

from __future__ import annotations

from shardguide.guidance.hints import Any

_SAVED = ("task", "arguments", "words", "skipped", "id", "torch", "pasted", "written", "trial", "unread")


class State:
    """One conversation."""

    def __init__(self) -> None:
        self.task = ""  # the workflow; "" while that is open
        self.arguments: dict[str, Any] = {}  # what was stated, for the workflow
        self.words = ""  # what the user said first
        self.skipped: list[str] = []  # questions that stay open: "I don't know"
        self.id = ""  # the Guidance that was shown last
        self.torch = ""  # the release that was asked for
        self.pasted: dict[str, str] = {}  # texts that were pasted, by the name that they were given
        self.written: list[str] = []  # what was written, in sentences
        self.trial: dict[str, Any] = {}  # what is only tried, and what the notebook holds of it (None: nothing)
        self.unread: list[str] = []  # what words spoke of in a way that was not understood: not taken from the notebook
        self.changed: dict[str, str] = {}  # files that were written, and where each was kept
        self.settled = False  # what it proposed is written: nothing is left open
        self.record: dict[str, Any] = {}  # not kept: it is in the notebook under its id

    def plain(self) -> dict[str, Any]:
        """As it is kept."""
        return {name: getattr(self, name) for name in _SAVED}

    @classmethod
    def of(cls, kept: Any) -> State | None:
        """From what was kept; None for what cannot be one."""
        if not isinstance(kept, dict) or not isinstance(kept.get("arguments"), dict):
            return None
        state = cls()
        for name in _SAVED:
            value = kept.get(name, getattr(state, name))
            if type(value) is not type(getattr(state, name)):
                return None
            setattr(state, name, value)
        return state
