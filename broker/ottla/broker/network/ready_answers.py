"""Encoded answers, kept for requests that are asked again in the same bytes.

Pure.  An answer is reused only while the state that it was made of is the same object, and only
for the same version, listener and local address, which an answer may name.  Whether a client may
see it, and what it is charged, is not decided here: where an authorizer or a quota is active the
dispatcher serves every request by its handler.
"""

from collections.abc import Callable
from typing import TypeAlias

from ottla.model.limits import KIB, MIB
from ottla.wire.headers import RequestHeader

REQUEST_BYTES_MAX = KIB
"""Size of the largest request that is looked up: copying it costs less than decoding it."""

ANSWER_BYTES_MAX = 64 * KIB
"""Size of the largest answer that is kept."""

KEPT_BYTES_MAX = MIB
"""What the keys and answers of one API take at most; the table starts again when it is full.  A
client that invents requests makes the others decode theirs again, and holds this much at most."""

ENTRY_BYTES = 256
"""What an entry takes besides its bytes."""

Door: TypeAlias = tuple[str, str, int]
"""The listener that a client came in by, and the local host and port."""

AnswerKey: TypeAlias = tuple[int, Door, bytes]


class ReadyAnswers:
    """The answers of one API, by what was asked."""

    __slots__ = ("_answers", "_kept_bytes", "_made_of", "_state")

    def __init__(self, state: Callable[[], object]) -> None:
        """`state` returns the immutable object that all the answers are made of."""
        self._state = state
        self._made_of: object = None
        self._answers: dict[AnswerKey, bytes] = {}
        self._kept_bytes = 0

    def key(self, header: RequestHeader, door: Door, frame: memoryview) -> AnswerKey | None:
        """Return what identifies a request; None for one that is too large to be looked up."""
        if len(frame) - header.body_at > REQUEST_BYTES_MAX:
            return None
        return header.api_version, door, bytes(frame[header.body_at :])

    def find(self, key: AnswerKey) -> bytes | None:
        """Return the body of the answer, if it holds still."""
        if self._state() is not self._made_of:
            return None
        return self._answers.get(key)

    def keep(self, key: AnswerKey, state: object, body: bytes) -> None:
        """Keep the body of an answer that was made of `state`."""
        if len(body) > ANSWER_BYTES_MAX or state is not self._state():
            return
        size = len(key[-1]) + len(body) + ENTRY_BYTES
        if state is not self._made_of or self._kept_bytes + size > KEPT_BYTES_MAX:
            self._answers.clear()
            self._kept_bytes = 0
            self._made_of = state
        if key not in self._answers:
            self._kept_bytes += size
        self._answers[key] = body

    @property
    def state(self) -> object:
        """What answers are made of now."""
        return self._state()

    @property
    def kept_bytes(self) -> int:
        """Memory of the table, as it is counted."""
        return self._kept_bytes
