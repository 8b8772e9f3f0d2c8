"""Encoded answers, kept for requests that are asked again in the same bytes.

Pure.  An answer is reused only while the state that it was made of is the same object, and only
for the same version, listener and local address, which an answer may name, and for the same
`Asker`: where an authorizer decides, two clients share an answer only if it decides alike for both.
What a client is charged is not decided here, and no answer that is kept tells of a throttle: the
dispatcher puts that in.
"""

from collections.abc import Callable
from sys import getsizeof
from typing import TypeAlias

from ottla.model.limits import KIB, MIB
from ottla.wire.headers import RequestHeader

REQUEST_BYTES_MAX = KIB
"""Size of the largest request that is looked up: copying it costs less than decoding it."""

ANSWER_BYTES_MAX = 64 * KIB
"""Size of the largest answer that is kept."""

KEPT_BYTES_MAX = 2 * MIB
"""What the keys and answers of one API take at most, half of them young and half old: answers that
were not asked for since half of it was filled are forgotten.  A client that invents requests, or
that comes as one user after another, makes the others decode theirs again, and holds this much."""

ENTRY_BYTES = 640
"""What an entry takes besides its bytes and the names in its key, so that it also bounds their
number: tuples, a listener's name and address, the slot in the table."""

Door: TypeAlias = tuple[str, str, int]
"""The listener that a client came in by, and the local host and port."""

Asker: TypeAlias = tuple[int, str, str]
"""Whom an authorizer decides about: the number of the state that it decides by, the principal and
the host."""

ANYONE: Asker = (0, "", "")
"""Where everything is allowed to everyone."""

AnswerKey: TypeAlias = tuple[int, Door, Asker, bytes]


class ReadyAnswers:
    """The answers of one API, by what was asked and by whom."""

    __slots__ = ("_made_of", "_old", "_old_bytes", "_state", "_young", "_young_bytes")

    def __init__(self, state: Callable[[], object]) -> None:
        """`state` returns the immutable object that all the answers are made of."""
        self._state = state
        self._made_of: object = None
        self._young: dict[AnswerKey, bytes] = {}
        self._old: dict[AnswerKey, bytes] = {}
        self._young_bytes = 0
        self._old_bytes = 0

    def key(
        self, header: RequestHeader, door: Door, frame: memoryview, asker: Asker = ANYONE
    ) -> AnswerKey | None:
        """Return what identifies a request; None for one that is too large to be looked up."""
        if len(frame) - header.body_at > REQUEST_BYTES_MAX:
            return None
        return header.api_version, door, asker, bytes(frame[header.body_at :])

    def find(self, key: AnswerKey) -> bytes | None:
        """Return the body of the answer, if it holds still."""
        if self._state() is not self._made_of:
            return None
        found = self._young.get(key)
        if found is None and self._old:
            found = self._old.get(key)
            if found is not None:
                self._put(key, found)
        return found

    def keep(self, key: AnswerKey, state: object, body: bytes) -> None:
        """Keep the body of an answer that was made of `state`."""
        if len(body) > ANSWER_BYTES_MAX or state is not self._state():
            return
        if state is not self._made_of:
            self._made_of = state
            self._young, self._young_bytes = {}, 0
            self._old, self._old_bytes = {}, 0
        self._put(key, body)

    def _put(self, key: AnswerKey, body: bytes) -> None:
        """Put an answer among the young ones; when these are many, forget the old ones."""
        _, principal, host = key[2]
        size = len(key[3]) + len(body) + ENTRY_BYTES
        if principal:
            size += getsizeof(principal) + getsizeof(host)
        if self._young_bytes + size > KEPT_BYTES_MAX // 2:
            self._old, self._old_bytes = self._young, self._young_bytes
            self._young, self._young_bytes = {}, 0
        if key not in self._young:
            self._young_bytes += size
        self._young[key] = body

    @property
    def state(self) -> object:
        """What answers are made of now."""
        return self._state()

    @property
    def kept_bytes(self) -> int:
        """Memory of the table, as it is counted."""
        return self._young_bytes + self._old_bytes
