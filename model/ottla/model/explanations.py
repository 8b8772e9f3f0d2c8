"""The messages beside the error codes of one answer, bounded.

A stranger chooses how many things a request names that are not there.  A message for each makes
an answer many times as large as its request; the code is there for all of them, and who reads
messages has understood after the first thousand.
"""

EXPLAINED_MAX = 1_000
"""Fewer leaves the tools of operators without messages, more lets a request of 1 MiB be answered
with tens."""


class Explanations:
    """The messages of one answer: its first refusals have one."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = EXPLAINED_MAX

    def of(self, message: str | None) -> str | None:
        """Return the message while the answer has room for it, then None."""
        if message is None or not self._left:
            return None
        self._left -= 1
        return message
