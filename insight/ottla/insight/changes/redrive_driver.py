"""Redrives dead letters of a share group: moves them back to the partitions of their records.

Each transaction writes up to `LETTERS_MAX` records and the progress of the redrive. If a redrive is
killed, its open transaction is aborted by the next redrive. The records of that transaction are not
committed, and are moved again. The transactional id is derived from the group and the dead letter
topic. A second redrive therefore fences the first.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_configs import ConfigResource
from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.client.producer import Producer
from ottla.insight.changes.progress import Report, ignore
from ottla.insight.changes.redrive_letters import (
    LeftReason,
    Letter,
    LetterCause,
    LetterFilter,
    has_copy,
    moved_headers,
)
from ottla.insight.changes.redrive_progress import (
    RANGES_MAX,
    DoneOffsets,
    progress_key,
    restored,
    stored,
)
from ottla.insight.changes.redrive_reader_driver import (
    COMMITTED,
    PartitionReader,
    SourceRecords,
    begin_offset,
    end_offset,
    stable_end_offset,
)
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ProducerConfig
from ottla.model.settings.resources import ConfigKind
from ottla.model.values import frozen
from ottla.wire.offset_timestamps import EARLIEST, LATEST

PROGRESS_TOPIC = "ottla.redrive"
"""Default name of the topic that stores the progress of redrives."""
LETTER_TOPIC = "errors.deadletterqueue.topic.name"
LETTERS_MAX = 500
"""Maximum number of dead letters that one transaction moves. A larger value repeats more work after
a kill. A smaller value is slower, since each transaction takes several round trips."""
LETTER_BYTES_MAX = 4 << 20
"""Total size in bytes of keys and values at which a transaction that moves dead letters is
committed."""
ORIGINS_KEPT = 100_000
"""Maximum number of moved records whose origin a redrive stores, in order to detect a second dead
letter for the same record."""
REQUEST_BYTES_MAX = 100 << 20


@frozen(kw_only=True)
class RedriveChoice:
    """Choice of the dead letters that a redrive moves."""

    group: str
    dead_letter_topic: str = ""
    """Topic with the dead letters, or an empty text for the topic in the group's settings."""
    cause: LetterCause | None = None
    places: Mapping[str, frozenset[int] | None] | None = None
    """Partitions of each source topic whose letters are moved, as in `LetterFilter`."""
    since_ms: int | None = None
    until_ms: int | None = None
    """End of the timestamps of the letters, exclusive, in ms since 1970. None for no end."""
    limit: int | None = None
    """Maximum number of letters to move. None for no limit."""
    redrives_max: int = 3
    """Maximum number of times that one record is moved."""
    progress_topic: str = PROGRESS_TOPIC


class Letters(NamedTuple):
    """A dead letter topic, and the selection of letters in it that a redrive moves."""

    filter: LetterFilter
    ends: dict[TopicPartition, tuple[int, int]]
    """First offset and end offset of each partition of the dead letter topic when the redrive
    started."""
    keys: dict[TopicPartition, bytes]
    """Key of the record that stores the progress, for each partition of the dead letter topic."""
    limit: int | None
    progress_topic: str

    @property
    def producer_config(self) -> ProducerConfig:
        """Settings of the producer that moves the letters."""
        return ProducerConfig(
            transactional_id=f"ottla.redrive.{self.filter.group_id}.{self.filter.letter_topic}",
            request_bytes_max=REQUEST_BYTES_MAX,
        )


class Tally:
    """Numbers of dead letters that one run examined. Moved letters are counted by partition and
    cause; all others by the reason why they were not moved."""

    def __init__(self) -> None:
        self.moved: Counter[tuple[TopicPartition, LetterCause]] = Counter()
        self.left: Counter[LeftReason] = Counter()

    @property
    def moved_count(self) -> int:
        """Number of dead letters that the run moved back."""
        return self.moved.total()

    def rows(self) -> list[tuple[str, int, int, int, int]]:
        """Return one row for each partition that receives dead letters: topic, partition, number of
        records, number of rejected records, and number of records without deliveries left."""
        places = sorted({at for at, _ in self.moved})
        return [
            (
                *at,
                sum(self.moved[at, cause] for cause in LetterCause),
                self.moved[at, LetterCause.REJECTED],
                self.moved[at, LetterCause.EXHAUSTED],
            )
            for at in places
        ]


async def letters_of(admin: Admin, choice: RedriveChoice) -> Letters:
    """Return the dead letter topic and the selection of letters that a choice describes. Raises
    ConfigError for an invalid choice."""
    if choice.limit is not None and choice.limit < 1:
        raise ConfigError("--limit", f"is {choice.limit}; it must be at least 1")
    if choice.redrives_max < 1:
        raise ConfigError("--redrives-max", f"is {choice.redrives_max}; it must be at least 1")
    topic = choice.dead_letter_topic or await _topic_of_group(admin, choice.group)
    described = await admin.describe_topic(topic)
    wanted = LetterFilter(
        group_id=choice.group,
        letter_topic=topic,
        cause=choice.cause,
        places=choice.places,
        since_ms=choice.since_ms,
        until_ms=choice.until_ms,
        redrives_max=choice.redrives_max,
    )
    partitions = [TopicPartition(topic, one.partition) for one in described.partitions]
    begins = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST), isolation_level=COMMITTED)
    return Letters(
        filter=wanted,
        ends={at: (int(begins[at].offset), int(ends[at].offset)) for at in partitions},
        keys={
            at: progress_key(choice.group, topic, described.topic_id, at.partition)
            for at in partitions
        },
        limit=choice.limit,
        progress_topic=choice.progress_topic,
    )


async def count_letters(admin: Admin, letters: Letters, progress: Report = ignore) -> Tally:
    """Examine dead letters without moving them. Returns the number of letters that a redrive would
    move, and the number of all other letters."""
    return await Redrive(admin, letters, None, progress, ignore).run()


async def move_letters(
    admin: Admin, letters: Letters, producer: Producer, progress: Report, note: Report = ignore
) -> Tally:
    """Move dead letters back to their partitions. Returns the number of moved letters, and the
    number of all other letters. `progress` is called with the number of letters moved so far, and
    `note` with the refusals of single letters. `producer` must have the settings `producer_config`
    of the letters."""
    await _create_progress_topic(admin, letters.progress_topic)
    return await Redrive(admin, letters, producer, progress, note).run()


async def _topic_of_group(admin: Admin, group: str) -> str:
    entries = await admin.describe_configs(
        ConfigResource(ConfigKind.GROUP, group), keys=[LETTER_TOPIC]
    )
    entry = entries.get(LETTER_TOPIC)
    if entry is None or not entry.value:
        raise ConfigError(
            "--dead-letter-topic", f"is not given, and share group {group!r} has no {LETTER_TOPIC}"
        )
    return entry.value


async def _partition_count(admin: Admin, topic: str) -> int:
    """Return the number of partitions of a topic, or 0 if it does not exist."""
    try:
        return len((await admin.describe_topic(topic)).partitions)
    except RefusedError as refusal:
        if refusal.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return 0


async def _create_progress_topic(admin: Admin, name: str) -> None:
    if await _partition_count(admin, name):
        return
    try:
        await admin.create_topic(name, partition_count=1, configs={"cleanup.policy": "compact"})
    except RefusedError as refusal:
        if refusal.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


class Redrive:
    """One pass over the dead letters of a share group. It moves the letters back to their
    partitions, or only counts them."""

    def __init__(
        self,
        admin: Admin,
        letters: Letters,
        producer: Producer | None,
        progress: Report,
        note: Report,
    ) -> None:
        """Create the pass over the dead letters. If `producer` is None, letters are only counted,
        and nothing is written."""
        self.tally = Tally()
        self._admin = admin
        self._letters = letters
        self._producer = producer
        self._report = progress
        self._note = note
        self._progress_topic = letters.progress_topic
        self._sources = SourceRecords(admin)
        self._origins: OrderedDict[tuple[TopicPartition, int], None] = OrderedDict()
        self._partition_counts: dict[str, int] = {}
        self._seen_count = 0
        self._total = sum(end - begin for begin, end in letters.ends.values())

    async def run(self) -> Tally:
        """Examine all dead letters from the start of the dead letter topic to the end that it had
        when the redrive started. Returns the number of moved letters, and the number of all other
        letters."""
        progress = await self._progress()
        for at, (begin, end) in self._letters.ends.items():
            done = progress.get(at, DoneOffsets())
            # Letters below the start of the log are no longer there.
            done.add(0, begin)
            await self._run_partition(at, begin, end, done)
            if self._is_full(0):
                break
        return self.tally

    def _is_full(self, waiting_count: int) -> bool:
        limit = self._letters.limit
        return limit is not None and self.tally.moved_count + waiting_count >= limit

    async def _run_partition(
        self, at: TopicPartition, begin: int, end: int, done: DoneOffsets
    ) -> None:
        lot = Lot(done)
        reader = PartitionReader(self._admin, at, begin, end, COMMITTED)
        while records := await reader.read():
            for record in records:
                self._seen_count += 1
                if record.offset not in lot.done:
                    await self._add(lot, record)
                if lot.is_full or self._is_full(len(lot.records)):
                    await self._finish(at, lot)
                    if self._is_full(0):
                        return
                    lot = Lot(lot.done)
        await self._finish(at, lot)

    async def _add(self, lot: "Lot", record: ConsumerRecord) -> None:
        verdict = await self._verdict(record)
        if isinstance(verdict, MovedRecord):
            lot.add(verdict, record.offset)
            return
        self.tally.left[verdict] += 1
        if verdict in (LeftReason.OTHER_GROUP, LeftReason.NO_LETTER, LeftReason.REPEATED):
            # No later run moves these, so that the ranges of the others become one.
            lot.done.add(record.offset, record.offset + 1)

    async def _verdict(self, record: ConsumerRecord) -> "MovedRecord | LeftReason":
        letter = self._letters.filter.verdict(record)
        if isinstance(letter, LeftReason):
            return letter
        origin = letter.at, letter.offset
        if origin in self._origins:
            return LeftReason.REPEATED
        if not await self._exists(letter.at):
            return LeftReason.NO_TOPIC
        source: ConsumerRecord | None = record
        if not has_copy(record):
            source = await self._sources.get(letter.at, letter.offset)
        if source is None:
            return LeftReason.NO_RECORD
        self._origins[origin] = None
        if len(self._origins) > ORIGINS_KEPT:
            self._origins.popitem(last=False)
        return MovedRecord(letter, record.offset, source)

    async def _exists(self, at: TopicPartition) -> bool:
        count = self._partition_counts.get(at.topic)
        if count is None:
            count = await _partition_count(self._admin, at.topic)
            self._partition_counts[at.topic] = count
        return at.partition < count

    async def _finish(self, at: TopicPartition, lot: "Lot") -> None:
        """Move the records of a lot (the content of one transaction) and commit the transaction. If
        a record is refused, move the records one by one."""
        self._report_progress()
        if self._producer is None or not lot.records:
            self._count(lot.records)
            return
        try:
            await self._move(self._producer, at, lot.records, lot.done)
            self._count(lot.records)
            return
        except RefusedError as refusal:
            if not _is_of_a_record(refusal):
                raise
        done = lot.done.copy()
        for one in lot.records:
            done.discard(one.letter_offset)
        for one in lot.records:
            done.add(one.letter_offset, one.letter_offset + 1)
            try:
                await self._move(self._producer, at, [one], done)
                self._count([one])
            except RefusedError as refusal:
                if not _is_of_a_record(refusal):
                    raise
                done.discard(one.letter_offset)
                self.tally.left[LeftReason.REFUSED] += 1
                self._note(f"letter at offset {one.letter_offset} of {at}: {refusal}")
        lot.done = done

    async def _move(
        self,
        producer: Producer,
        at: TopicPartition,
        records: list["MovedRecord"],
        done: DoneOffsets,
    ) -> None:
        if len(done) > RANGES_MAX:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                f"moved and left letters of {at} alternate more than {RANGES_MAX:,} times; move "
                "with fewer filters",
            )
        async with producer.transaction():
            deliveries = [
                await producer.send(
                    one.letter.at.topic,
                    one.source.value,
                    key=one.source.key,
                    partition=one.letter.at.partition,
                    # The present time: retention would delete records with their old one.
                    headers=moved_headers(one.source.headers, one.letter),
                )
                for one in records
            ]
            deliveries.append(
                await producer.send(
                    self._progress_topic, stored(done), key=self._letters.keys[at], partition=0
                )
            )
            for delivery in deliveries:
                await delivery

    def _count(self, records: list["MovedRecord"]) -> None:
        for one in records:
            self.tally.moved[one.letter.at, one.letter.cause] += 1

    def _report_progress(self) -> None:
        moved, seen = self.tally.moved_count, self._seen_count
        verb = "moved" if self._producer is not None else "to move"
        self._report(f"{moved:,} {verb}, {seen:,} of up to {self._total:,} dead letters read")

    async def _progress(self) -> dict[TopicPartition, DoneOffsets]:
        """Return the stored progress (the offsets to skip) of each partition of the dead letter
        topic."""
        at, admin = TopicPartition(self._progress_topic, 0), self._admin
        if not await _partition_count(admin, self._progress_topic):
            return {}
        if self._producer is None:
            # A count need not wait for the open transaction of a killed redrive.
            end = await end_offset(admin, at, COMMITTED)
        else:
            end = await stable_end_offset(admin, at)
        reader = PartitionReader(admin, at, await begin_offset(admin, at), end, COMMITTED)
        places = {key: place for place, key in self._letters.keys.items()}
        found: dict[TopicPartition, DoneOffsets] = {}
        while records := await reader.read():
            for record in records:
                place = places.get(record.key or b"")
                if place is not None:
                    found[place] = restored(record.value)
        return found


class MovedRecord(NamedTuple):
    """Record that is written from the dead letter topic back to its original partition."""

    letter: Letter
    letter_offset: int
    """Offset of the record's dead letter in the dead letter topic."""
    source: ConsumerRecord
    """Record with the key, value and headers to write. It is the dead letter itself, or the
    original record to which the letter refers."""


class Lot:
    """Records that one transaction moves back to their partitions, and the progress that the
    transaction stores."""

    def __init__(self, done: DoneOffsets) -> None:
        self.done = done.copy()
        self.records: list[MovedRecord] = []
        self._size_bytes = 0

    @property
    def is_full(self) -> bool:
        """True if the transaction has enough records and should be committed."""
        return len(self.records) >= LETTERS_MAX or self._size_bytes >= LETTER_BYTES_MAX

    def add(self, moved: MovedRecord, offset: int) -> None:
        """Add a record that is moved back, and the offset of its dead letter, to the
        transaction."""
        self.records.append(moved)
        self.done.add(offset, offset + 1)
        self._size_bytes += len(moved.source.key or b"") + len(moved.source.value or b"")


def _is_of_a_record(refusal: RefusedError) -> bool:
    """Return whether a broker's refusal may be due to a single record. The other records of the
    transaction can then still be moved."""
    cause: BaseException | None = refusal
    while cause is not None:
        if isinstance(cause, RefusedError) and cause.code in OF_ONE_RECORD:
            return True
        cause = cause.__cause__ or cause.__context__
    return False


OF_ONE_RECORD = frozenset(
    (
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    )
)
