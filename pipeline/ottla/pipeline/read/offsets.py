"""Where a query stands: offsets of partitions, as the connector's JSON; what was lost between two.

`{"t": {"0": 250}}` says that of t-0 everything below 250 is read.  Beside it stands the id of each
topic, as a name that no topic can have with no partitions at all, `{"t@Xl3…": {}}`: Spark's own
connector reads that as nothing, and we see that a topic was deleted and created again.

Spark keeps the end of each batch, and takes the end before it for its start; of the first batch it
keeps no start, and asks for it again when that batch is repeated.  So the first end tells where the
query began, in a name too: `{"@{\"t\":{\"0\":7}}": {}}`.

Pure.  Invariants: EveryOffsetOnce (the batches of one query follow each other without gap or
overlap, but for losses that are told), SameBatchSameRanges (ranges depend on the two positions and
nothing else, so that a repeated batch has the same).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.model.ids import TopicPartition
from ottla.pipeline.read.ranges import OffsetRange

ID_MARK = "@"
"""Stands between a topic's name and its id; no name of a topic may have it."""
EARLIEST, LATEST = -2, -1
"""Offsets that stand for others, in options and to brokers."""

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True)
class StreamPosition:
    """The next offset of each partition, and the id of each topic where brokers tell it."""

    offsets: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    begin: Offsets | None = None
    """In the end of a query's first batch: where that batch began."""

    @classmethod
    def from_json(cls, found: Mapping[str, Mapping[str, int]]) -> "StreamPosition":
        """Read what `to_json` returned, or what Spark's own connector left in a checkpoint."""
        offsets, marks = _taken_apart(found)
        began = marks.pop("", None)
        return cls(offsets, marks, None if began is None else _taken_apart(json.loads(began))[0])

    def to_json(self) -> dict[str, dict[str, int]]:
        """Return the connector's JSON, in order of topic and partition."""
        found = _by_topic(self.offsets)
        if self.begin is not None:
            began = json.dumps(_by_topic(self.begin), separators=(",", ":"))
            found[f"{ID_MARK}{began}"] = {}
        for topic, topic_id in sorted(self.topic_ids.items()):
            found[f"{topic}{ID_MARK}{topic_id}"] = {}
        return found

    def is_at(self, other: "StreamPosition") -> bool:
        """Return whether two positions are the same place, wherever the query began."""
        return self.offsets == other.offsets and self.topic_ids == other.topic_ids


def _by_topic(offsets: Offsets) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for at in sorted(offsets):
        found.setdefault(at.topic, {})[str(at.partition)] = offsets[at]
    return found


def parse_partition_offsets(found: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Read `{"t": {"0": 250}}` as users write it; ValueError where it is not that."""
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


# ---- what a batch reads


class StreamBatch(NamedTuple):
    """The records between two positions, and a sentence for each loss that is known by then."""

    ranges: tuple[OffsetRange, ...]
    losses: tuple[str, ...]


def between(start: StreamPosition, end: StreamPosition) -> StreamBatch:
    """Return what is to be read to come from one position to the next, in order of partition.

    The first batch begins where its end says that it did, whatever `start` says now.
    A partition that is new begins at 0: where its log begins later, that is a loss, and whoever
    reads it finds out.
    """
    if start == end:
        return StreamBatch((), ())
    if end.begin is not None:
        start = StreamPosition(end.begin, end.topic_ids)
    remade = made_anew(start, end)
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


def made_anew(start: StreamPosition, end: StreamPosition) -> set[str]:
    """Return the topics that had another id at `start`: nothing of them was read yet."""
    return {
        topic
        for topic, topic_id in start.topic_ids.items()
        if topic in end.topic_ids and end.topic_ids[topic] != topic_id
    }


# ---- how much of what is there a batch takes


def rate_limited(
    limit: int, start: StreamPosition, latest: StreamPosition, earliest: Offsets
) -> StreamPosition:
    """Return the end of a batch of about `limit` records, shared out by what partitions have.

    As Spark's own connector does it: each share is rounded down, but what is less than one record
    is one, so that no partition starves.  `earliest` says where partitions that are new begin.
    """
    begins = _begins(start, latest, earliest)
    sizes = {at: max(end - begins[at], 0) for at, end in latest.offsets.items()}
    total = sum(sizes.values())
    if total == 0:
        return latest
    ends = {}
    for at, end in latest.offsets.items():
        share = limit * sizes[at]
        # In integers: what a float rounds would differ from machine to machine.
        count = -(-share // total) if share < total else share // total
        ends[at] = min(end, begins[at] + count) if sizes[at] else end
    return StreamPosition(ends, latest.topic_ids)


def record_count(start: StreamPosition, latest: StreamPosition, earliest: Offsets) -> int:
    """Return how many records lie between two positions, at most."""
    begins = _begins(start, latest, earliest)
    return sum(max(end - begins[at], 0) for at, end in latest.offsets.items())


def new_partitions(start: StreamPosition, latest: StreamPosition) -> set[TopicPartition]:
    """Return the partitions of which nothing was read yet: new ones, and those of topics again."""
    remade = made_anew(start, latest)
    return {at for at in latest.offsets if at not in start.offsets or at.topic in remade}


def _begins(
    start: StreamPosition, latest: StreamPosition, earliest: Offsets
) -> dict[TopicPartition, int]:
    new = new_partitions(start, latest)
    return {at: earliest.get(at, 0) if at in new else start.offsets[at] for at in latest.offsets}


def is_behind(start: StreamPosition, latest: StreamPosition) -> bool:
    """Return whether some partition ends before what was read of it already."""
    remade = made_anew(start, latest)
    return any(
        at.topic not in remade and end < start.offsets.get(at, 0)
        for at, end in latest.offsets.items()
    )


class Patience:
    """Holds a small batch back until there is enough to read or it has waited long enough.

    The first batch is never held back.  Owns when the last batch was let through.
    """

    def __init__(self, min_count: int, delay_ms_max: int) -> None:
        self._min_count = min_count
        self._delay_ms_max = delay_ms_max
        self._last_ms: int | None = None

    def lets_through(self, count: int, now_ms: int) -> bool:
        """Return whether a batch of so many records may begin now."""
        is_due = self._last_ms is None or now_ms - self._last_ms >= self._delay_ms_max
        if is_due or count >= self._min_count:
            self._last_ms = now_ms
            return True
        return False


# ---- where a query begins, where a batch query ends


@dataclass(frozen=True)
class Everywhere:
    """The same in each partition: EARLIEST or LATEST."""

    offset: int


@dataclass(frozen=True)
class Each:
    """An offset for each partition; EARLIEST and LATEST stand for themselves."""

    offsets: Offsets


@dataclass(frozen=True)
class Since:
    """The first record at or after a time, in ms since 1970."""

    time_ms: int


@dataclass(frozen=True)
class SinceEach:
    """As `Since`, with a time for each partition."""

    times_ms: Offsets


Place = Everywhere | Each | Since | SinceEach


class OffsetLookups(NamedTuple):
    """What is known of the partitions' offsets, and what brokers are to be asked for the rest."""

    known: dict[TopicPartition, int]
    asked: dict[TopicPartition, int]
    """A time in ms, or EARLIEST or LATEST."""


def ask_for(place: Place, partitions: Iterable[TopicPartition]) -> OffsetLookups:
    """Return what to ask brokers to find a place; ValueError where it leaves partitions out."""
    wanted = sorted(partitions)
    if isinstance(place, Everywhere):
        return OffsetLookups({}, dict.fromkeys(wanted, place.offset))
    if isinstance(place, Since):
        return OffsetLookups({}, dict.fromkeys(wanted, place.time_ms))
    given = place.offsets if isinstance(place, Each) else place.times_ms
    missing, extra = sorted(set(wanted) - set(given)), sorted(set(given) - set(wanted))
    if missing:
        raise ValueError(f"says nothing of {', '.join(map(str, missing))}")
    if extra:
        raise ValueError(f"names {', '.join(map(str, extra))}, which the query does not read")
    if isinstance(place, SinceEach):
        return OffsetLookups({}, dict(given))
    return OffsetLookups(
        {at: offset for at, offset in given.items() if offset >= 0},
        {at: offset for at, offset in given.items() if offset < 0},
    )
