"""Positions of a query: offsets of partitions in the JSON of Spark's Kafka connector, and the
records that were lost between two positions.

`{"t": {"0": 250}}` means that all records of partition t-0 below offset 250 have been read. The id
of each topic is stored beside it, as an impossible topic name without partitions: `{"t@Xl3…": {}}`.
Spark's own connector ignores that name. Ottla uses it to detect that a topic was deleted and
created again.

Spark stores the end of each batch, which is the start of the next batch. It does not store the
start of the first batch, but requests it again if that batch is repeated. The end of the first
batch therefore also contains the start of the query, in another impossible name:
`{"@{"t":{"0":7}}": {}}`.

Pure. Invariants: EveryOffsetOnce (the batches of one query follow each other without gap or
overlap, except for reported losses), SameBatchSameRanges (ranges depend only on the two positions,
so that a repeated batch has the same ranges).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.model.ids import TopicPartition
from ottla.pipeline.read.ranges import OffsetRange

ID_MARK = "@"
"""Separator between a topic's name and its id in a stored position; topic names cannot contain
it."""
EARLIEST, LATEST = -2, -1
"""Symbolic offsets for the start and the end of a log, in options and in requests."""

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True)
class StreamPosition:
    """Position of a query: the next offset of each partition, and the ids of topics if brokers
    report them."""

    offsets: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    begin: Offsets | None = None
    """Start of the query's first batch. It is stored in the end of that batch, and is None in all
    other positions."""

    @classmethod
    def from_json(cls, found: Mapping[str, Mapping[str, int]]) -> "StreamPosition":
        """Parse a position that `to_json` has returned, or that a checkpoint of Spark's own
        connector contains."""
        offsets, marks = _taken_apart(found)
        began = marks.pop("", None)
        return cls(offsets, marks, None if began is None else _taken_apart(json.loads(began))[0])

    def to_json(self) -> dict[str, dict[str, int]]:
        """Return the position of the query as the JSON object that Spark's Kafka connector uses,
        ordered by topic and partition."""
        found = _by_topic(self.offsets)
        if self.begin is not None:
            began = json.dumps(_by_topic(self.begin), separators=(",", ":"))
            found[f"{ID_MARK}{began}"] = {}
        for topic, topic_id in sorted(self.topic_ids.items()):
            found[f"{topic}{ID_MARK}{topic_id}"] = {}
        return found

    def is_at(self, other: "StreamPosition") -> bool:
        """Return whether two positions of a query have equal offsets and topic ids. The start of
        the query is ignored."""
        return self.offsets == other.offsets and self.topic_ids == other.topic_ids


def _by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for at in sorted(offsets):
        found.setdefault(at.topic, {})[str(at.partition)] = offsets[at]
    return found


def parse_partition_offsets(found: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Return the partitions' offsets in a JSON text that a user has written, such as `{"t": {"0":
    250}}`. Raises ValueError if the text is malformed."""
    return dict(_taken_apart(found)[0])


def _taken_apart(
    found: Mapping[str, Any],
) -> tuple[dict[TopicPartition, int], dict[str, str]]:
    offsets: dict[TopicPartition, int] = {}
    marks: dict[str, str] = {}
    for topic, partitions in found.items():
        name, mark, marked = topic.partition(ID_MARK)
        if mark:
            marks[name] = marked
            continue
        if not isinstance(partitions, dict):
            raise ValueError(f"{topic} has {partitions!r}")
        for number, offset in partitions.items():
            is_number = isinstance(offset, int) and not isinstance(offset, bool)
            if not (is_number and str(number).isdecimal()):
                raise ValueError(f"{topic}-{number} has {offset!r}")
            offsets[TopicPartition(topic, int(number))] = offset
    return offsets, marks


# ---- records of a batch


class StreamBatch(NamedTuple):
    """The records between two positions of a stream, and a message for each known loss of
    records."""

    ranges: tuple[OffsetRange, ...]
    losses: tuple[str, ...]


def between(start: StreamPosition, end: StreamPosition) -> StreamBatch:
    """Return the ranges of offsets from the position `start` to the position `end`, in order of
    partition, and one message for each loss of records. Records are lost if a topic was created
    again, or if a partition was deleted or truncated.

    The end of a query's first batch also contains the start of the query (`end.begin`). That start
    is then used instead of `start`. A new partition starts at offset 0. If the log of the new
    partition starts later, the task that reads the partition reports the loss.
    """
    if start == end:
        return StreamBatch((), ())
    if end.begin is not None:
        start = StreamPosition(end.begin, end.topic_ids)
    remade = recreated_topics(start, end)
    ranges: list[OffsetRange] = []
    losses = [f"topic {topic!r} was deleted and created again" for topic in sorted(remade)]
    gone = sorted(set(start.offsets) - set(end.offsets))
    losses += [f"{at} is gone" for at in gone if at.topic not in remade]
    for at, end_offset in sorted(end.offsets.items()):
        first = 0 if at.topic in remade else start.offsets.get(at, 0)
        if end_offset < first:
            losses.append(f"{at} ends at {end_offset} but was read up to {first}")
        else:
            topic_id = end.topic_ids.get(at.topic, "")
            ranges.append(OffsetRange(at.topic, at.partition, first, end_offset, topic_id))
    return StreamBatch(tuple(ranges), tuple(losses))


def recreated_topics(start: StreamPosition, end: StreamPosition) -> set[str]:
    """Return the topics whose id differs from their id in the position `start`, because they were
    deleted and created again. None of their records has been read."""
    return {
        topic
        for topic, topic_id in start.topic_ids.items()
        if topic in end.topic_ids and end.topic_ids[topic] != topic_id
    }


# ---- size of a batch


def rate_limited(
    limit: int, start: StreamPosition, latest: StreamPosition, earliest: Offsets
) -> StreamPosition:
    """Return the end position of a stream's batch of about `limit` records, with a proportional
    share for each partition.

    As in Spark's own connector, each share is rounded down, except that a share below one record
    becomes one, so that no partition starves. `earliest` contains the start offsets of new
    partitions.
    """
    begins = _begins(start, latest, earliest)
    sizes = {at: max(end - begins[at], 0) for at, end in latest.offsets.items()}
    total = sum(sizes.values())
    if total == 0:
        return latest
    ends = {}
    for at, end in latest.offsets.items():
        share = limit * sizes[at]
        # Integer arithmetic, because the rounding of floats differs between machines.
        count = -(-share // total) if share < total else share // total
        ends[at] = min(end, begins[at] + count) if sizes[at] else end
    return StreamPosition(ends, latest.topic_ids)


def record_count(start: StreamPosition, latest: StreamPosition, earliest: Offsets) -> int:
    """Return the number of offsets between two positions of a query. The number of records is not
    larger."""
    begins = _begins(start, latest, earliest)
    return sum(max(end - begins[at], 0) for at, end in latest.offsets.items())


def new_partitions(start: StreamPosition, latest: StreamPosition) -> set[TopicPartition]:
    """Return the partitions from which a query has read no records yet: new partitions, and
    partitions of recreated topics."""
    remade = recreated_topics(start, latest)
    return {at for at in latest.offsets if at not in start.offsets or at.topic in remade}


def _begins(
    start: StreamPosition, latest: StreamPosition, earliest: Offsets
) -> dict[TopicPartition, int]:
    new = new_partitions(start, latest)
    return {at: earliest.get(at, 0) if at in new else start.offsets[at] for at in latest.offsets}


def is_behind(start: StreamPosition, latest: StreamPosition) -> bool:
    """Return whether the log of any partition ends before the position `start`."""
    remade = recreated_topics(start, latest)
    return any(
        at.topic not in remade and end < start.offsets.get(at, 0)
        for at, end in latest.offsets.items()
    )


class BatchDelay:
    """Delay of a stream's small batch until there are enough records, or until the batch has waited
    long enough.

    The first batch is never delayed. The object stores the time of the last batch.
    """

    def __init__(self, min_count: int, delay_ms_max: int) -> None:
        self._min_count = min_count
        self._delay_ms_max = delay_ms_max
        self._last_ms: int | None = None

    def may_start(self, count: int, now_ms: int) -> bool:
        """Return whether a stream's batch of `count` records may start now, or has to wait for
        further records."""
        is_due = self._last_ms is None or now_ms - self._last_ms >= self._delay_ms_max
        if is_due or count >= self._min_count:
            self._last_ms = now_ms
            return True
        return False


# ---- start of a query, end of a batch query


@dataclass(frozen=True)
class AllPartitions:
    """Start or end of a query, as its options define it: EARLIEST or LATEST in every partition."""

    offset: int


@dataclass(frozen=True)
class OffsetPerPartition:
    """Start or end of a query, as its options define it: an offset for each partition, which may be
    EARLIEST or LATEST."""

    offsets: Offsets


@dataclass(frozen=True)
class FromTimestamp:
    """Start or end of a query as defined by its options: in each partition, the first record at or
    after one timestamp, in ms since 1970."""

    time_ms: int


@dataclass(frozen=True)
class TimestampPerPartition:
    """Start or end of a query as defined by its options, with a separate timestamp (in ms since
    1970) for each partition. The position is the first record at or after the timestamp."""

    times_ms: Offsets


Place = AllPartitions | OffsetPerPartition | FromTimestamp | TimestampPerPartition


class OffsetLookups(NamedTuple):
    """Offsets of partitions that are already known, and timestamps whose offsets brokers must look
    up."""

    known: dict[TopicPartition, int]
    asked: dict[TopicPartition, int]
    """Lookup for the offset of each partition: a timestamp in ms since 1970, EARLIEST or LATEST."""


def ask_for(place: Place, partitions: Iterable[TopicPartition]) -> OffsetLookups:
    """Return the known offsets and the lookups for the start or end of a query (`place`).  Raises
    ValueError if `place` does not contain all partitions."""
    wanted = sorted(partitions)
    if isinstance(place, AllPartitions):
        return OffsetLookups({}, dict.fromkeys(wanted, place.offset))
    if isinstance(place, FromTimestamp):
        return OffsetLookups({}, dict.fromkeys(wanted, place.time_ms))
    given = place.offsets if isinstance(place, OffsetPerPartition) else place.times_ms
    missing, extra = sorted(set(wanted) - set(given)), sorted(set(given) - set(wanted))
    if missing:
        raise ValueError(f"says nothing of {', '.join(map(str, missing))}")
    if extra:
        raise ValueError(f"names {', '.join(map(str, extra))}, which the query does not read")
    if isinstance(place, TimestampPerPartition):
        return OffsetLookups({}, dict(given))
    return OffsetLookups(
        {at: offset for at, offset in given.items() if offset >= 0},
        {at: offset for at, offset in given.items() if offset < 0},
    )
