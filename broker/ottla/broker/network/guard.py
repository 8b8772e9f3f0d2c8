"""What stands between the frames of a connection and the dispatcher, while it must.  Pure.

A listener that asks who its clients are gives each connection a guard.  The guard sees a frame
before anything of it is parsed: it lets the frame pass, answers it, or ends the connection.  Once
it is done the connection parts from it, and serves at no cost as one that never had a guard.
"""

from dataclasses import dataclass
from typing import Protocol

from ottla.broker.network.response_queue import ResponseSlot
from ottla.wire.codec_types import Message
from ottla.wire.headers import RequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardAnswer:
    """What a guard answers to a frame."""

    header: RequestHeader
    message: Message | None = None
    """An answer of the request's API."""
    token: bytes | None = None
    """An answer without a header."""
    closes_at_ms: int | None = None
    """When to answer and close the connection (monotonic); until then nothing is read."""


class ConnectionGuard(Protocol):
    """The guard of one connection."""

    is_done: bool
    """Whether every later frame may pass unseen."""

    @property
    def has_logged_in(self) -> bool:
        """True if the client is known; once True, it stays so."""
        ...

    @property
    def frame_bytes_max(self) -> int | None:
        """The largest frame now; None for the connection's own bound."""
        ...

    @property
    def frame_bytes_min(self) -> int | None:
        """The smallest frame now; None for that of a request."""
        ...

    def on_frame(self, frame: memoryview, now_ms: int) -> GuardAnswer | None:
        """Judge a frame: None lets it pass to the dispatcher.

        Raises ProtocolError when the connection must be closed at once.
        """
        ...


class GuardPost:
    """A connection's guard, and the answer after which the connection closes."""

    __slots__ = ("_guard", "_parting")

    def __init__(self, guard: ConnectionGuard) -> None:
        self._guard = guard
        self._parting: tuple[int, ResponseSlot, GuardAnswer] | None = None

    @property
    def is_done(self) -> bool:
        """Whether every later frame may pass unseen."""
        return self._guard.is_done

    @property
    def has_logged_in(self) -> bool:
        """True if the client is known."""
        return self._guard.has_logged_in

    @property
    def is_parting(self) -> bool:
        """Whether the connection closes after an answer that is held back."""
        return self._parting is not None

    def frame_bounds(self, least: int, most: int) -> tuple[int, int]:
        """Return the sizes of frames that are allowed now, within those of the connection."""
        guard_least, guard_most = self._guard.frame_bytes_min, self._guard.frame_bytes_max
        return (
            least if guard_least is None else guard_least,
            most if guard_most is None else min(guard_most, most),
        )

    def on_frame(self, frame: memoryview, now_ms: int) -> GuardAnswer | None:
        """Judge a frame, as the guard does."""
        return self._guard.on_frame(frame, now_ms)

    def answer(self, slot: ResponseSlot, answer: GuardAnswer) -> int | None:
        """Answer now, or return when (monotonic) the connection is to be parted from."""
        if answer.closes_at_ms is None:
            _complete(slot, answer)
            return None
        self._parting = (answer.closes_at_ms, slot, answer)
        return answer.closes_at_ms

    def part(self, now_ms: int) -> None:
        """Give the answer that was held back once it is due, and close after it."""
        if self._parting is None or now_ms < self._parting[0]:
            return
        _, slot, answer = self._parting
        self._parting = None
        slot.closes_connection = True
        _complete(slot, answer)


def _complete(slot: ResponseSlot, answer: GuardAnswer) -> None:
    if answer.message is not None:
        slot.complete(answer.message)
    elif answer.token is not None:
        slot.complete_raw(answer.token)
    else:
        slot.complete_silently()
