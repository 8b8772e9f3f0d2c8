"""Limit on the number of error messages in one response. Each message explains one error code.

A request may name any number of unknown topics or other items. With a message for each item, a
response could be many times as large as its request. Every item still gets its error code.
"""

EXPLAINED_MAX = 1_000
"""Maximum number of error messages per response. With a smaller number, users of admin tools miss
explanations. With a larger number, a request of 1 MiB can cause a response of tens of MiB."""


class Explanations:
    """Counter of the error messages in one response. After `EXPLAINED_MAX` messages, further errors
    get only their code."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = EXPLAINED_MAX

    def of(self, message: str | None) -> str | None:
        """Return `message`, or None if the response already has `EXPLAINED_MAX` messages."""
        if message is None or not self._left:
            return None
        self._left -= 1
        return message
