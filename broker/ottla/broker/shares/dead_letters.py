"""Dead letters of one share partition: records that are archived once their copy is written to the
dead letter topic of the group (KIP-1191).

Pure; times are parameters. A dead letter has three steps: the state Archiving is stored, the copy
is written, and the state Archived is stored. A failed step is repeated after a back-off, without a
limit on the number of attempts. Kafka 4.4 archives the record even if the copy could not be
written.

The copy is sent only after the state Archiving is durable. Otherwise the next leader could deliver
a record that already has a dead letter.
"""

from collections.abc import Iterator
from enum import Enum, auto

BACKOFF_MS_FIRST = 100
BACKOFF_MS_MAX = 30_000
"""Maximum delay in milliseconds before a failed step of a dead letter is repeated. With a smaller
value, dead letters are written sooner after the topic is repaired. With a larger value, a cluster
with a missing topic has less load."""


class LetterStep(Enum):
    """Next step of a dead letter: store the state Archiving, send the copy, or store the state
    Archived."""

    STORE_ARCHIVING = auto()
    SEND = auto()
    STORE_ARCHIVED = auto()


class DeadLetter:
    """Dead letter (copy for the dead letter topic) of one record that is not archived yet, with its
    current step."""

    __slots__ = (
        "count",
        "due_ms",
        "failure_count",
        "is_alone",
        "is_rejected",
        "is_under_way",
        "offset",
        "step",
    )

    def __init__(self, offset: int, count: int, step: LetterStep, *, is_rejected: bool) -> None:
        self.offset = offset
        self.count = count
        """Number of deliveries of the record that the dead letter copies."""
        self.step = step
        self.is_rejected = is_rejected
        """True if a consumer rejected the record. False if the record has reached the delivery
        count limit."""
        self.is_alone = False
        """True if the dead letter is sent in a separate batch, because the leader refused a batch
        that contained it."""
        self.is_under_way = False
        """True while the current step of the dead letter has begun and its outcome is not known
        yet."""
        self.failure_count = 0
        """Number of consecutive failures of the dead letter's current step."""
        self.due_ms = 0
        """Monotonic time in milliseconds from which the next step of the dead letter may begin."""

    def advance(self, step: LetterStep) -> None:
        """Set the next step of this dead letter, which may begin at once."""
        self.step, self.is_under_way = step, False
        self.failure_count = self.due_ms = 0

    def back_off(self, now_ms: int) -> None:
        """Schedule the failed step of the dead letter again, after a back-off that doubles with
        each failure."""
        wait_ms = BACKOFF_MS_FIRST << min(self.failure_count, 10)
        self.failure_count += 1
        self.is_under_way = False
        self.due_ms = now_ms + min(wait_ms, BACKOFF_MS_MAX)


class DeadLetters:
    """Dead letters of a share partition, by the offset of the record. The size of the delivery
    window bounds their number."""

    __slots__ = ("_by_offset",)

    def __init__(self) -> None:
        self._by_offset: dict[int, DeadLetter] = {}

    def __len__(self) -> int:
        return len(self._by_offset)

    def get(self, offset: int) -> DeadLetter | None:
        """Return the dead letter for the record at an offset, or None if the record has no dead
        letter."""
        return self._by_offset.get(offset)

    def add(
        self, first: int, last: int, count: int, step: LetterStep, *, is_rejected: bool
    ) -> list[DeadLetter]:
        """Add a dead letter for each record in the range of offsets from `first` to `last`, and
        return the letters. `count` is the number of deliveries of each record, and `is_rejected` is
        True if a consumer rejected the records."""
        added = [
            DeadLetter(offset, count, step, is_rejected=is_rejected)
            for offset in range(first, last + 1)
        ]
        self._by_offset.update((letter.offset, letter) for letter in added)
        return added

    def remove(self, first: int, last: int) -> None:
        """Remove the dead letters of the records in a range of offsets."""
        for letter in tuple(self.within(first, last)):
            del self._by_offset[letter.offset]

    def within(self, first: int, last: int) -> Iterator[DeadLetter]:
        """Yield the dead letters of the records in a range of offsets, both ends inclusive."""
        if last - first < len(self._by_offset):
            for offset in range(first, last + 1):
                letter = self._by_offset.get(offset)
                if letter is not None:
                    yield letter
        else:
            for offset, letter in self._by_offset.items():
                if first <= offset <= last:
                    yield letter

    def due(self, now_ms: int) -> list[DeadLetter]:
        """Return the dead letters whose next step may begin now, ordered by offset."""
        found = [
            letter
            for letter in self._by_offset.values()
            if not letter.is_under_way and letter.due_ms <= now_ms
        ]
        found.sort(key=lambda letter: letter.offset)
        return found

    @property
    def next_due_ms(self) -> int | None:
        """Monotonic time in milliseconds at which the next step of a dead letter may begin, or None
        if all letters wait for results."""
        return min(
            (letter.due_ms for letter in self._by_offset.values() if not letter.is_under_way),
            default=None,
        )
