"""Parses dead letters of a share group (copies of records that its members could not process). The
result contains the origin and the cause of a letter, and the reason if the letter cannot be moved
back.

Pure. Other clients may write to a dead letter topic, so headers are checked before they are used.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.model.ids import TopicPartition

ORIGIN = "__dlq.errors."
"""Prefix of the names of headers that brokers add to a dead letter (KIP-1191)."""
COUNT_HEADER = "ottla.redrive.count"
"""Name of the header with the number of times that a record was moved back, in digits. A redrive
adds it to moved records."""
GROUP_HEADER = "ottla.redrive.group"
"""Name of the header with the share group for which a record was moved back. A redrive adds it to
moved records."""

NUMBER = re.compile(rb"[0-9]{1,19}")
INT32_MAX, INT64_MAX = (1 << 31) - 1, (1 << 63) - 1
TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

Headers = Sequence[tuple[str, bytes | None]]


class LetterCause(StrEnum):
    """Cause of a dead letter, as a user names it."""

    REJECTED = "rejected"
    EXHAUSTED = "exhausted"
    OTHER = "other"


CAUSES = {
    b"Offset rejected by client.": LetterCause.REJECTED,
    b"Offset delivery count exceeded the threshold.": LetterCause.EXHAUSTED,
}


class LeftReason(StrEnum):
    """Reason why a redrive does not move a record of a dead letter topic."""

    OTHER_GROUP = "of another group"
    NO_LETTER = "no dead letter: its headers name no record"
    FILTERED = "excluded by a filter"
    REDRIVEN = "moved as often as --redrives-max allows"
    LOOP = "its topic is the dead letter topic"
    NO_TOPIC = "its topic or partition does not exist"
    NO_RECORD = "a letter without a copy, whose record is no longer in its topic"
    REPEATED = "a second letter for one record"
    REFUSED = "refused by the broker"


class Letter(NamedTuple):
    """Origin and cause of one dead letter (a record that a share group could not process)."""

    group_id: str
    at: TopicPartition
    """Topic and partition of the original record, which became the dead letter."""
    offset: int
    """Offset of the original record, which became the dead letter."""
    cause: LetterCause
    redrive_count: int
    """Number of times that the dead letter's record was moved back before."""


def letter_in(record: ConsumerRecord) -> Letter | None:
    """Return the origin and cause of the dead letter in a record, or None if the record is no dead
    letter."""
    # The last header of a name counts: a copied record may be a dead letter itself.
    fields = {name: value or b"" for name, value in record.headers}
    topic, group_id = _text(fields, "topic"), _text(fields, "group")
    partition = _number(fields.get(f"{ORIGIN}partition", b""), INT32_MAX)
    offset = _number(fields.get(f"{ORIGIN}offset", b""), INT64_MAX)
    if not group_id or partition is None or offset is None:
        return None
    if TOPIC_NAME.fullmatch(topic) is None or topic.startswith("__"):
        return None
    return Letter(
        group_id=group_id,
        at=TopicPartition(topic, partition),
        offset=offset,
        cause=CAUSES.get(fields.get(f"{ORIGIN}message", b""), LetterCause.OTHER),
        redrive_count=_number(fields.get(COUNT_HEADER, b"0"), INT32_MAX) or 0,
    )


def _text(fields: Mapping[str, bytes], name: str) -> str:
    return fields.get(ORIGIN + name, b"").decode("utf-8", "replace")


def _number(text: bytes, largest: int) -> int | None:
    if NUMBER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if number <= largest else None


class LetterFilter(NamedTuple):
    """Filter of the dead letters that a redrive moves: the letters of one group that meet all
    conditions."""

    group_id: str
    letter_topic: str
    cause: LetterCause | None = None
    places: Mapping[str, frozenset[int] | None] | None = None
    """Partitions of each source topic whose dead letters are moved. A value of None means all
    partitions of the topic. If the whole field is None, dead letters of every topic are moved."""
    since_ms: int | None = None
    until_ms: int | None = None
    """Exclusive end of the timestamps of dead letters to move, in ms since 1970; `since_ms` is
    their start. None means no end. For a letter with a copy of its record, the record's timestamp
    counts."""
    redrives_max: int = 3
    """Maximum number of times that one record is moved from the dead letter topic back to its
    partition. Without the limit, a record that always fails would be moved and rejected endlessly.
    """

    def verdict(self, record: ConsumerRecord) -> Letter | LeftReason:
        """Return the dead letter in a record if the filter selects it. Otherwise return the reason
        why it is not moved."""
        letter = letter_in(record)
        if letter is None:
            return LeftReason.NO_LETTER
        if letter.group_id != self.group_id:
            return LeftReason.OTHER_GROUP
        if not self._passes(letter, record.timestamp_ms):
            return LeftReason.FILTERED
        if letter.at.topic == self.letter_topic:
            return LeftReason.LOOP
        if letter.redrive_count >= self.redrives_max:
            return LeftReason.REDRIVEN
        return letter

    def _passes(self, letter: Letter, timestamp_ms: int) -> bool:
        if self.cause is not None and letter.cause is not self.cause:
            return False
        if self.since_ms is not None and timestamp_ms < self.since_ms:
            return False
        if self.until_ms is not None and timestamp_ms >= self.until_ms:
            return False
        if self.places is None:
            return True
        if letter.at.topic not in self.places:
            return False
        partitions = self.places[letter.at.topic]
        return partitions is None or letter.at.partition in partitions


def has_copy(record: ConsumerRecord) -> bool:
    """Return whether a dead letter contains the key or value of its record. If it contains neither,
    the record must be read from its topic."""
    return record.key is not None or record.value is not None


def moved_headers(headers: Headers, letter: Letter) -> list[tuple[str, bytes | None]]:
    """Return the headers of a record that is moved back: its original headers, the group, and the
    number of moves."""
    kept = [
        (name, value)
        for name, value in headers
        if not name.startswith(ORIGIN) and name not in (COUNT_HEADER, GROUP_HEADER)
    ]
    return [
        *kept,
        (GROUP_HEADER, letter.group_id.encode()),
        (COUNT_HEADER, b"%d" % (letter.redrive_count + 1)),
    ]
