"""A consumer's positions, against a log for each partition and the next offset to give out."""

import os
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ottla.client.fetch.fetched import FetchedRecords
from ottla.client.fetch.positions import PartitionPlace, Positions
from ottla.model.ids import NO_EPOCH, Epoch, Offset, OffsetAndEpoch, TopicPartition
from ottla.model.settings.offset_reset import parse_offset_reset
from ottla.wire.batch_builder import build_batch
from ottla.wire.offset_timestamps import EARLIEST, LATEST

PARTITIONS = tuple(TopicPartition("t", index) for index in range(3))
AHEAD_BYTES = 400
EPOCH = Epoch(3)


class ExpectedFetch(NamedTuple):
    """A fetch without a response yet."""

    place: PartitionPlace
    move_count: int
    fetch: OffsetAndEpoch


class LookedUp(NamedTuple):
    """A look-up without a response yet."""

    place: PartitionPlace
    move_count: int
    timestamp: int


class ReadingMachine(RuleBasedStateMachine):
    """One application that reads, seeks and pauses while responses come late, or never."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = Positions(parse_offset_reset("earliest"), AHEAD_BYTES)
        self.starts = dict.fromkeys(PARTITIONS, 0)
        self.ends = dict.fromkeys(PARTITIONS, 0)
        self.due: dict[TopicPartition, int | None] = {}
        """The next offset of each assigned partition; None until it is looked up."""
        self.paused: set[TopicPartition] = set()
        self.asked: list[ExpectedFetch] = []
        self.looked_up: list[LookedUp] = []
        self.now_ms = 0

    at = st.sampled_from(PARTITIONS)
    any_number = st.integers(0, 1_000)

    @initialize()
    def begins(self) -> None:
        self.assigns(set(PARTITIONS))
        self.places_all()

    # ---- the logs

    @rule(at=at, count=st.integers(1, 6))
    def appends(self, at: TopicPartition, count: int) -> None:
        self.ends[at] += count

    @rule(at=at, count=st.integers(1, 4))
    def deletes(self, at: TopicPartition, count: int) -> None:
        self.starts[at] = min(self.ends[at], self.starts[at] + count)

    # ---- the application

    @rule(wanted=st.sets(at))
    def assigns(self, wanted: set[TopicPartition]) -> None:
        self.positions.assign(sorted(wanted))
        self.due = {at: self.due.get(at) for at in wanted}
        self.paused &= wanted

    @rule(at=at, back=st.integers(0, 8))
    def seeks(self, at: TopicPartition, back: int) -> None:
        if at in self.due:
            self.due[at] = max(0, self.ends[at] - back)
            self.positions.seek(at, Offset(self.due[at] or 0))

    @rule(at=at, timestamp=st.sampled_from((EARLIEST, LATEST)))
    def seeks_to_an_end(self, at: TopicPartition, timestamp: int) -> None:
        if at in self.due:
            self.positions.look_up(at, timestamp)
            self.due[at] = None

    @rule(at=at, is_paused=st.booleans())
    def pauses(self, at: TopicPartition, is_paused: bool) -> None:
        if at in self.due:
            self.positions.place(at).is_paused = is_paused
            (self.paused.add if is_paused else self.paused.discard)(at)

    @rule(count=st.integers(1, 12))
    def takes(self, count: int) -> None:
        taken = self.positions.take(count)
        assert len(taken) <= count
        for record in taken:
            self.reads(TopicPartition(record.topic, record.partition), record.offset, record.value)

    @rule(count=st.integers(1, 12))
    def takes_batches(self, count: int) -> None:
        for batch in self.positions.take_batches(count, None):
            for record in batch:
                at = TopicPartition(record.topic, record.partition)
                self.reads(at, record.offset, record.value)

    def reads(self, at: TopicPartition, offset: int, value: bytes | None) -> None:
        assert at not in self.paused
        assert offset == self.due[at], "NothingIsSkipped, EachOnce"
        assert value == b"%d of %d" % (offset, at.partition)
        self.due[at] = offset + 1

    # ---- the brokers

    @rule(number=any_number)
    def asks(self, number: int) -> None:
        fetchable = self.positions.fetchable()
        assert all(place.at not in self.paused for place in fetchable)
        if fetchable:
            place = fetchable[number % len(fetchable)]
            self.asked.append(ExpectedFetch(place, place.move_count, place.fetch))

    @precondition(lambda self: self.asked)
    @rule(number=any_number, before=st.integers(0, 2), count=st.integers(1, 5))
    def answers(self, number: int, before: int, count: int) -> None:
        """Answer one open fetch, in any order, with a batch that may begin before its offset."""
        place, move_count, fetch = self.asked.pop(number % len(self.asked))
        at = place.at
        self.now_ms += 1_000
        if not self.starts[at] <= fetch.offset <= self.ends[at]:
            self.refuses(place, move_count, fetch)
            return
        first = max(self.starts[at], fetch.offset - before)
        last = min(self.ends[at], fetch.offset + count)
        data = b""
        if last > fetch.offset:
            data = build_batch(
                [(0, None, b"%d of %d" % (n, at.partition)) for n in range(first, last)],
                base_offset=Offset(first),
                leader_epoch=EPOCH,
            )
        self.positions.on_fetched(
            place, move_count, FetchedRecords(at, fetch.offset, fetch.epoch, data)
        )

    @rule(at=at, count=st.integers(1, 5))
    def reads_ahead(self, at: TopicPartition, count: int) -> None:
        """Have records fetched that the application did not read yet."""
        self.ends[at] += count
        for place in self.positions.fetchable():
            if place.at == at:
                self.asked.append(ExpectedFetch(place, place.move_count, place.fetch))
                self.answers(len(self.asked) - 1, 0, count)

    @rule(at=at, count=st.integers(1, 5))
    def keeps_what_is_paused(self, at: TopicPartition, count: int) -> None:
        """Pause a partition that has records, and read the others."""
        self.reads_ahead(at, count)
        self.pauses(at, True)
        self.takes(100)
        self.takes_batches(100)
        self.pauses(at, False)

    @rule(at=at)
    def loses_all_records(self, at: TopicPartition) -> None:
        """Move a log's start to its end while a fetch is under way."""
        for place in self.positions.fetchable():
            if place.at == at:
                self.asked.append(ExpectedFetch(place, place.move_count, place.fetch))
                self.ends[at] += 1
                self.starts[at] = self.ends[at]
                self.answers(len(self.asked) - 1, 0, 1)

    def refuses(self, place: PartitionPlace, move_count: int, fetch: OffsetAndEpoch) -> None:
        before = place.position
        self.positions.on_out_of_range(place, move_count, fetch.offset, self.now_ms)
        if before is not None and place.position is None:
            assert self.due[place.at] == fetch.offset, "a record that was fetched is skipped"
            self.due[place.at] = None

    @rule()
    def places_all(self) -> None:
        """Have every look-up answered, the late ones too."""
        for _ in self.positions.unplaced():
            self.looks_up(0)
            self.places(len(self.looked_up) - 1)
        while self.looked_up:
            self.places(0)

    @rule(at=at, times=st.permutations((EARLIEST, LATEST)))
    def changes_its_mind(self, at: TopicPartition, times: list[int]) -> None:
        """Seek to the other end while the first look-up is under way."""
        for timestamp in times:
            self.seeks_to_an_end(at, timestamp)
            for number, place in enumerate(self.positions.unplaced()):
                if place.at == at:
                    self.looks_up(number)

    @rule(number=any_number)
    def looks_up(self, number: int) -> None:
        unplaced = self.positions.unplaced()
        if unplaced:
            place = unplaced[number % len(unplaced)]
            timestamp = self.positions.reset_of(place)
            assert timestamp in (EARLIEST, LATEST)
            self.looked_up.append(LookedUp(place, place.move_count, timestamp))

    @precondition(lambda self: self.looked_up)
    @rule(number=any_number)
    def places(self, number: int) -> None:
        place, move_count, timestamp = self.looked_up.pop(number % len(self.looked_up))
        at = place.at
        found = self.starts[at] if timestamp == EARLIEST else self.ends[at]
        is_awaited = self.positions.find(at) is place and place.move_count == move_count
        self.positions.on_placed(place, move_count, OffsetAndEpoch(Offset(found), NO_EPOCH))
        if is_awaited:
            assert self.due[at] is None
            self.due[at] = found

    # ---- always

    @invariant()
    def positions_are_what_the_application_has_read(self) -> None:
        assert set(self.positions) == self.due.keys()
        for at, offset in self.due.items():
            position = self.positions.place(at).position
            assert (None if position is None else position.offset) == offset

    @invariant()
    def little_is_fetched_ahead(self) -> None:
        for at in self.positions:
            place = self.positions.place(at)
            if place.buffered_bytes >= AHEAD_BYTES:
                assert place not in self.positions.fetchable()


TestReading = ReadingMachine.TestCase
TestReading.settings = settings(
    max_examples=1_000 if os.environ.get("OTTLA_FAULTS") == "full" else 60,
    stateful_step_count=50,
    deadline=None,
)
