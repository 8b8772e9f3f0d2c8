"""Guards of connections: they receive frames before the dispatcher does, until the client has
logged in. Pure.

A listener that authenticates clients creates a guard for each connection. The guard receives each
frame before it is parsed. It passes the frame on, answers it, or closes the connection. After the
login, the connection drops the guard and has no further cost.
"""

from dataclasses import dataclass
from typing import Protocol

from ottla.node.network.response_queue import ResponseSlot
from ottla.wire.codec_types import Message
from ottla.wire.headers import RequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardResponse:
    """Response that a connection's guard sends to a frame. A guard receives the frames of a client
    until the client has logged in."""

    header: RequestHeader
    message: Message | None = None
    """Response message of the request's API; None if the guard sends a raw token."""
    token: bytes | None = None
    """SASL token that the guard sends without a response header; None if it sends a message."""
    closes_at_ms: int | None = None
    """Monotonic time in milliseconds at which the response is sent and the connection closes.
    Nothing is read until then. None if the response is sent without a delay."""


class ConnectionGuard(Protocol):
    """Interface of a connection's guard, which receives the client's frames until the client has
    logged in."""

    is_done: bool
    """True if the guard has finished because the client has logged in. Later frames bypass the
    guard."""

    @property
    def has_logged_in(self) -> bool:
        """True if the client of the connection has authenticated. The value never becomes False
        again."""
        ...

    @property
    def frame_bytes_max(self) -> int | None:
        """Maximum size in bytes of the client's frames at this stage of the login; None if the
        connection's ordinary limit applies."""
        ...

    @property
    def frame_bytes_min(self) -> int | None:
        """Minimum size in bytes of the client's frames at this stage of the login; None if the
        minimum of a request applies."""
        ...

    def on_frame(self, frame: memoryview, now_ms: int) -> GuardResponse | None:
        """Process a frame of the client. Returns the response to send, or None to pass the frame to
        the dispatcher.

        Raises ProtocolError if the connection must be closed at once.
        """
        ...


class GuardState:
    """Guard of one connection, and the guard's delayed response. A guard receives the client's
    frames until the client has logged in. The connection closes after a delayed response."""

    __slots__ = ("_guard", "_parting")

    def __init__(self, guard: ConnectionGuard) -> None:
        self._guard = guard
        self._parting: tuple[int, ResponseSlot, GuardResponse] | None = None

    @property
    def is_done(self) -> bool:
        """True if the connection's guard has finished because the client has logged in. Later
        frames bypass the guard."""
        return self._guard.is_done

    @property
    def has_logged_in(self) -> bool:
        """True if the client of the connection has authenticated."""
        return self._guard.has_logged_in

    @property
    def is_parting(self) -> bool:
        """True if the guard has delayed a response. The connection closes after that response."""
        return self._parting is not None

    def frame_bounds(self, least: int, most: int) -> tuple[int, int]:
        """Return the minimum and maximum size in bytes of the client's frames at this stage of the
        login. `least` and `most` are the connection's ordinary bounds."""
        guard_least, guard_most = self._guard.frame_bytes_min, self._guard.frame_bytes_max
        return (
            least if guard_least is None else guard_least,
            most if guard_most is None else min(guard_most, most),
        )

    def on_frame(self, frame: memoryview, now_ms: int) -> GuardResponse | None:
        """Pass a frame of the client to the guard. Returns the response to send, or None if the
        dispatcher must handle the frame."""
        return self._guard.on_frame(frame, now_ms)

    def answer(self, slot: ResponseSlot, answer: GuardResponse) -> int | None:
        """Send a guard's response and return None. A delayed response is stored instead; the result
        is then the monotonic time in milliseconds at which to send it and close the connection."""
        if answer.closes_at_ms is None:
            _complete(slot, answer)
            return None
        self._parting = (answer.closes_at_ms, slot, answer)
        return answer.closes_at_ms

    def part(self, now_ms: int) -> None:
        """Send the guard's delayed response if it is due, and close the connection afterwards."""
        if self._parting is None or now_ms < self._parting[0]:
            return
        _, slot, answer = self._parting
        self._parting = None
        slot.closes_connection = True
        _complete(slot, answer)


def _complete(slot: ResponseSlot, answer: GuardResponse) -> None:
    if answer.message is not None:
        slot.complete(answer.message)
    elif answer.token is not None:
        slot.complete_raw(answer.token)
    else:
        slot.complete_silently()
