"""The one exception that a front end turns into a sentence and exit status 2."""


class UnusableInput(Exception):
    """Input that cannot be used: missing, truncated, contradictory, hostile.

    The message is one sentence for the user: what is wrong, where, and what to do about it. It ends
    without a traceback, so it must stand on its own.
    """
