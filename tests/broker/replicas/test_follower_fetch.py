"""A follower against a real leader's Fetch: copies, cuts back, sets aside; sockets apart."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.quotas.replication_quota import ReplicationQuota
from ottla.broker.replicas.follower_fetch import (
    BACKOFF_MS_FIRST,
    NEAR_READ_MS,
    FindLogRange,
    Flush,
    FollowerFetch,
    RaiseStart,
    Truncate,
    TruncateFully,
    log_end_of,
    place_of,
)
from ottla.broker.replicas.partition import Partition
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_EPOCH, NO_OFFSET, Epoch, NodeId, Offset, TopicIdPartition
from ottla.model.limits import INT64_MAX
from ottla.model.quotas.rates import WindowShape
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.storage.topic import TopicConfig
from ottla.storage.log.log import Log, open_log
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch
from ottla.wire.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)

World = Any  # the class of the `world` fixture, in conftest.py

LEADER = NodeId(1)
LOCAL = NodeId(2)
BROKER_EPOCH = 10
EPOCH = 3
"""The leader epoch of the world's partitions."""


class Pair:
    """The leader of partition t-0 in one broker, and its follower in another."""

    def __init__(self, world: World, leading: Partition, following: Partition) -> None:
        self.world = world
        self.leading = leading
        self.following = following
        config = BrokerConfig(node_id=LOCAL, replica_fetch_backoff_ms=1_000)
        self.quota = ReplicationQuota(WindowShape(), INT64_MAX, world.clock.monotonic_ms)
        self.core = FollowerFetch(LEADER, config, self.quota)

    @property
    def ours(self) -> Log:
        assert self.following.log is not None
        return self.following.log

    @property
    def theirs(self) -> Log:
        assert self.leading.log is not None
        return self.leading.log

    @property
    def key(self) -> TopicIdPartition:
        return TopicIdPartition(self.following.topic_id, self.following.index)

    def ask(self) -> FetchResponse | None:
        """Send the next fetch, let a long poll end, and return the answer."""
        request = self.core.request(self.world.clock.now_ms, BROKER_EPOCH)
        if request is None:
            return None
        call = self.world.fetch(request)
        if not call.is_completed:
            self.world.pass_time(request.max_wait_ms)
        answer: FetchResponse = call.response(FetchResponse)
        self.core.session.take(answer)
        return answer

    def take(self, answer: FetchResponse) -> list[Any]:
        """Apply a fetch response and return the resulting duties."""
        duties = []
        for topic in answer.responses:
            for data in topic.partitions:
                followed = self.core.find(TopicIdPartition(topic.topic_id, data.partition_index))
                if followed is not None:
                    clock = self.world.clock
                    duties.append(
                        self.core.take(followed, data, now_ms=clock.now_ms, wall_ms=clock.wall_ms())
                    )
        return [duty for duty in duties if duty is not None]

    async def round(self) -> list[Any]:
        """Fetch, apply the response, and perform its disk duties; return the duties."""
        answer = self.ask()
        duties = [] if answer is None else self.take(answer)
        for duty in duties:
            if isinstance(duty, Truncate):
                await self.ours.truncate_to(duty.offset)
            elif isinstance(duty, TruncateFully):
                await self.ours.truncate_fully_and_start_at(duty.offset)
            elif isinstance(duty, RaiseStart):
                await self.ours.delete_records_before(duty.offset)
            elif isinstance(duty, Flush):
                await self.ours.flush()
            if not isinstance(duty, FindLogRange):
                followed = self.core.find(self.key)
                assert followed is not None
                self.core.done(followed)
        return duties

    def lead(self, *values: bytes) -> None:
        """Append one batch on the leader."""
        self.leading.append(
            self.world.batch(*values), acks=1, now_ms=self.world.clock.wall_ms(), mono_ms=0
        )


def written(log: Log, epoch: int, *values: bytes) -> None:
    """Append a batch to a log as the leader of an epoch would."""
    log.assign_epoch(Epoch(epoch), log.end_offset)
    batch = build_batch([(0, None, value) for value in values])
    log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=Epoch(epoch), now_ms=0)


def content(log: Log) -> bytes:
    found = log.read(
        log.log_start_offset, bytes_max=1 << 20, end_offset=log.end_offset, at_least_one=True
    )
    return b"" if found.slice is None else found.slice.read()


@pytest.fixture
async def make_pair(world: World, tmp_path: Path) -> Callable[..., Any]:
    async def make(
        config: TopicConfig | None = None,
        *,
        before: Callable[[Log, Log], None] = lambda ours, theirs: None,
    ) -> Pair:
        """Return a leader and a follower whose logs have the records written by `before`."""
        settings = config or TopicConfig()
        leading = await world.add(
            "t", replicas=(1, 2), leader=1, config=settings, is_log_there=False
        )
        following = Partition(
            "t",
            leading.topic_id,
            0,
            local_id=LOCAL,
            is_eligible=lambda replica, epoch: True,
            port=world.port,
        )
        state = world.table.image.partition(TopicIdPartition(leading.topic_id, 0))
        following.apply(state, settings, 0)
        theirs = await world.open_log(leading, settings)
        ours = await open_log(
            world.disk,
            str(tmp_path / "follower"),
            config=LogConfig.of_topic(settings),
            topic_id=leading.topic_id,
            is_clean=True,
            recovery_point=Offset(0),
            log_start_offset=Offset(0),
            now_ms=0,
        )
        before(ours, theirs)
        leading.attach(theirs, 0)
        following.attach(ours, 0)
        pair = Pair(world, leading, following)
        pair.core.follow(following)
        return pair

    return make


async def test_a_follower_holds_what_its_leader_holds_byte_for_byte(make_pair: Any) -> None:
    pair = await make_pair()
    for number in range(5):
        pair.lead(b"one%d" % number, b"two%d" % number)
        assert await pair.round() == []
    assert content(pair.ours) == content(pair.theirs)
    assert pair.ours.end_offset == 10


async def test_its_next_fetch_commits_and_the_answer_after_brings_the_high_watermark(
    make_pair: Any,
) -> None:
    pair = await make_pair()
    pair.lead(b"v")
    await pair.round()
    assert (pair.theirs.high_watermark, pair.ours.high_watermark) == (0, 0)
    await pair.round()
    assert (pair.theirs.high_watermark, pair.ours.high_watermark) == (1, 1)


async def test_what_only_the_follower_has_is_cut_off(make_pair: Any) -> None:
    """KIP-101, scenario 2: both wrote other records at the same offsets."""

    def before(ours: Log, theirs: Log) -> None:
        for log in (ours, theirs):
            written(log, 1, b"same")
        written(ours, 1, b"never committed")
        written(theirs, 2, b"committed", b"too")

    pair = await make_pair(before=before)
    assert await pair.round() == [Truncate(Offset(1))]
    await pair.round()
    assert content(pair.ours) == content(pair.theirs)


@pytest.mark.parametrize("hole_offset", [0, 2])
async def test_a_log_with_a_hole_is_filled_again_from_there(
    make_pair: Any, hole_offset: int
) -> None:
    def before(ours: Log, theirs: Log) -> None:
        for log in (ours, theirs):
            for value in (b"a", b"b", b"c", b"d"):
                written(log, 1, value)
        ours.note_hole(Offset(hole_offset))

    pair = await make_pair(before=before)
    hole = Offset(hole_offset)
    assert log_end_of(pair.ours) == (NO_OFFSET, NO_EPOCH)
    assert await pair.round() == [Truncate(hole) if hole_offset else TruncateFully(hole)]
    assert (pair.ours.end_offset, pair.ours.hole_offset) == (hole_offset, None)
    await pair.round()
    assert content(pair.ours) == content(pair.theirs)


async def test_a_hole_is_filled_though_the_leader_s_session_has_no_news(make_pair: Any) -> None:
    """The first answer is for an earlier leader epoch, the next is incremental (seed 442300)."""

    def before(ours: Log, theirs: Log) -> None:
        for log in (ours, theirs):
            written(log, 1, b"a")
        ours.note_hole(Offset(0))

    pair = await make_pair(before=before)
    answer = pair.ask()
    assert answer is not None
    pair.core.leave(pair.key)
    pair.core.follow(pair.following)
    assert pair.take(answer) == []
    assert await pair.round() == [TruncateFully(Offset(0))]
    await pair.round()
    assert content(pair.ours) == content(pair.theirs)
    assert pair.theirs.high_watermark == 0


async def test_logs_that_part_more_than_once_are_cut_back_step_by_step(make_pair: Any) -> None:
    """KIP-279: a fast fail-over left epochs on either side that the other does not know."""

    def before(ours: Log, theirs: Log) -> None:
        for log in (ours, theirs):
            written(log, 0, b"a", b"b")
        written(ours, 1, b"only ours")
        written(theirs, 2, b"theirs")

    pair = await make_pair(before=before)
    cuts: list[Any] = []
    while (duties := await pair.round()) and len(cuts) < 10:
        cuts += duties
    assert cuts
    await pair.round()
    assert content(pair.ours) == content(pair.theirs)


async def test_a_leadership_that_wrote_nothing_does_not_hold_the_follower_up(
    make_pair: Any,
) -> None:
    """Its own former epoch is unknown to the leader, though no record differs."""

    def before(ours: Log, theirs: Log) -> None:
        for log in (ours, theirs):
            written(log, 0, b"a")
        ours.assign_epoch(Epoch(1), ours.end_offset)
        written(theirs, 2, b"b")

    pair = await make_pair(before=before)
    for _ in range(4):
        await pair.round()
    assert content(pair.ours) == content(pair.theirs)


async def test_outside_the_leaders_log_it_asks_where_that_begins_and_ends(
    make_pair: Any,
) -> None:
    pair = await make_pair()
    for value in (b"a", b"b", b"c"):
        pair.lead(value)
    pair.theirs.update_high_watermark(Offset(3))
    await pair.theirs.roll(now_ms=0)
    await pair.theirs.delete_records_before(Offset(3))
    assert await pair.round() == [FindLogRange()]


async def test_a_log_that_begins_beyond_the_leaders_end_begins_again_at_its_start(
    make_pair: Any,
) -> None:
    pair = await make_pair()
    for value in (b"a", b"b", b"c"):
        pair.lead(value)
    await pair.ours.truncate_fully_and_start_at(Offset(50))
    pair.core.leave(pair.key)
    pair.core.follow(pair.following)

    assert await pair.round() == [FindLogRange()]

    followed = pair.core.find(pair.key)
    assert place_of(followed, Offset(0), Offset(3)) == TruncateFully(Offset(0))


async def test_a_log_that_parts_from_the_leaders_before_its_start_begins_again(
    make_pair: Any,
) -> None:
    """A leadership of another's wrote the leader's log from 2 on: nothing of ours is shared."""

    def before(ours: Log, theirs: Log) -> None:
        for _ in range(5):
            written(ours, 1, b"x")
        ours.update_high_watermark(Offset(5))
        for _ in range(2):
            written(theirs, 1, b"x")
        for _ in range(5):
            written(theirs, 2, b"y")

    pair = await make_pair(before=before)
    await pair.ours.delete_records_before(Offset(4))

    assert await pair.round() == [FindLogRange()]

    followed = pair.core.find(pair.key)
    assert place_of(followed, Offset(1), Offset(7)) == TruncateFully(Offset(1))


async def test_a_log_within_the_leaders_keeps_its_place(make_pair: Any) -> None:
    pair = await make_pair(before=lambda ours, theirs: written(ours, 1, b"a", b"b"))
    followed = pair.core.find(pair.key)
    assert place_of(followed, Offset(0), Offset(1)) == Truncate(Offset(1))
    assert place_of(followed, Offset(3), Offset(9)) == TruncateFully(Offset(3))
    assert place_of(followed, Offset(2), Offset(9)) == RaiseStart(Offset(0))


async def test_what_the_leader_has_deleted_is_let_go(make_pair: Any) -> None:
    pair = await make_pair()
    for value in (b"a", b"b"):
        pair.lead(value)
    await pair.round()
    await pair.round()
    await pair.theirs.delete_records_before(Offset(1))
    pair.world.purgatory.wake(pair.leading.end_offset_key)
    assert await pair.round() == [RaiseStart(Offset(1))]
    assert pair.ours.log_start_offset == 1


async def test_what_ends_where_the_leader_begins_and_is_not_its_own_is_let_go(
    make_pair: Any,
) -> None:
    """The leader has deleted what would show that our record is another one."""

    def before(ours: Log, theirs: Log) -> None:
        written(ours, 0, b"never committed")
        written(theirs, 1, b"a")

    pair = await make_pair(before=before)
    pair.theirs.update_high_watermark(Offset(1))
    await pair.theirs.delete_old_segments(now_ms=1 << 50)

    assert await pair.round() == [TruncateFully(Offset(1))]
    pair.lead(b"b")
    await pair.round()

    assert pair.ours.log_start_offset == 1
    assert content(pair.ours) == content(pair.theirs)


async def test_what_ends_where_the_leader_begins_is_kept_when_it_is_known_to_be_committed(
    make_pair: Any,
) -> None:
    """Its producers' sequences are still needed."""
    pair = await make_pair()
    pair.lead(b"a")
    await pair.round()
    pair.theirs.update_high_watermark(Offset(1))
    await pair.theirs.delete_records_before(Offset(1))
    pair.world.purgatory.wake(pair.leading.end_offset_key)

    assert await pair.round() == [RaiseStart(Offset(1))]


async def test_where_a_flush_is_demanded_it_asks_on_only_when_durable(make_pair: Any) -> None:
    pair = await make_pair(TopicConfig(flush_messages=1))
    pair.lead(b"v")
    await pair.theirs.flush()
    answer = pair.ask()
    assert pair.take(answer) == [Flush()]
    await pair.ours.flush()
    pair.core.done(pair.core.find(pair.key))
    await pair.round()
    assert pair.theirs.high_watermark == 1


async def test_where_a_flush_is_demanded_it_promises_nothing_of_before_that_is_not_durable(
    make_pair: Any,
) -> None:
    """A fetch under way when the leader changes, or what it wrote as a leader itself."""

    def both_have_it(ours: Log, theirs: Log) -> None:
        written(ours, EPOCH - 1, b"a")
        written(theirs, EPOCH - 1, b"a")

    pair = await make_pair(TopicConfig(flush_messages=1), before=both_have_it)
    await pair.theirs.flush()

    assert pair.ask() is None
    (unflushed,) = pair.core.take_unflushed()
    assert pair.core.take_unflushed() == []
    assert pair.theirs.high_watermark == 0

    await pair.ours.flush()
    pair.core.done(unflushed)
    await pair.round()
    assert pair.theirs.high_watermark == 1


async def test_a_follower_asks_on_with_fewer_than_flush_messages_records_unflushed(
    make_pair: Any,
) -> None:
    pair = await make_pair(TopicConfig(flush_messages=3))
    await pair.theirs.flush()
    for expected in ([], [], [Flush()]):
        pair.lead(b"v")
        assert await pair.round() == expected
    assert pair.ours.recovery_point == 3
    pair.lead(b"v")
    assert await pair.round() == []
    assert (pair.ours.end_offset, pair.ours.recovery_point) == (4, 3)


async def test_a_flush_that_failed_for_a_while_is_tried_again(make_pair: Any) -> None:
    """On a full disk no later append would ever start it."""
    pair = await make_pair(
        TopicConfig(flush_messages=1), before=lambda ours, theirs: written(ours, 1, b"a")
    )
    now_ms = pair.world.clock.monotonic_ms()
    (unflushed,) = pair.core.take_unflushed()
    pair.core.mark_failed(unflushed, RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, "no room"), now_ms)
    assert not pair.core.has_unflushed
    retry_ms = pair.core.next_retry_ms
    assert pair.core.request(retry_ms, BROKER_EPOCH) is None
    assert pair.core.next_retry_ms is None
    assert pair.core.has_unflushed


async def test_a_partition_that_is_no_longer_followed_is_not_flushed(make_pair: Any) -> None:
    pair = await make_pair(
        TopicConfig(flush_messages=1), before=lambda ours, theirs: written(ours, 1, b"a")
    )

    pair.core.leave(pair.key)

    assert pair.core.take_unflushed() == []


def answer_of(pair: Pair, **data: Any) -> FetchResponse:
    topic = FetchableTopicResponse(topic_id=pair.following.topic_id, partitions=[])
    topic.partitions.append(PartitionData(partition_index=0, records=None, **data))
    return FetchResponse(session_id=1, responses=[topic])


async def test_a_refused_partition_is_left_alone_for_longer_each_time(make_pair: Any) -> None:
    pair = await make_pair()
    refused = answer_of(pair, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    waits = []
    for _ in range(8):
        assert pair.core.request(pair.world.clock.now_ms, BROKER_EPOCH) is not None
        assert pair.take(refused) == []
        assert pair.core.request(pair.world.clock.now_ms, BROKER_EPOCH) is None
        due_ms = pair.core.next_retry_ms
        assert due_ms is not None
        waits.append(due_ms - pair.world.clock.now_ms)
        pair.world.clock.now_ms = due_ms
    assert waits == [BACKOFF_MS_FIRST << n for n in range(6)] + [1_000, 1_000]
    assert list(pair.core.problems()) == []


def damaged_answer(pair: Pair) -> FetchResponse:
    batch = bytearray(build_batch([(0, None, b"v" * 100)]))
    batch[-1] ^= 1
    data = PartitionData(records=memoryview(batch))
    topic = FetchableTopicResponse(topic_id=pair.following.topic_id, partitions=[data])
    return FetchResponse(responses=[topic])


async def test_damage_that_stays_is_tried_less_and_less_and_said_once(
    make_pair: Any, caplog: pytest.LogCaptureFixture
) -> None:
    pair = await make_pair()
    waits = []
    for _ in range(3):
        assert pair.core.request(pair.world.clock.now_ms, BROKER_EPOCH) is not None
        pair.take(damaged_answer(pair))
        due_ms = pair.core.next_retry_ms
        assert due_ms is not None
        waits.append(due_ms - pair.world.clock.now_ms)
        pair.world.clock.now_ms = due_ms
    assert waits == [BACKOFF_MS_FIRST << n for n in range(3)]
    assert [record.message for record in caplog.records] == [
        "t-0 does not follow broker 1: CORRUPT_MESSAGE: CRC of the batch at offset 0"
    ]


async def test_a_damaged_batch_sets_its_partition_aside_with_the_reason(make_pair: Any) -> None:
    pair = await make_pair()
    damaged = damaged_answer(pair)
    pair.core.request(0, BROKER_EPOCH)
    pair.take(damaged)
    assert pair.ours.end_offset == 0
    assert list(pair.core.problems()) == [
        "t-0 does not follow broker 1: CORRUPT_MESSAGE: CRC of the batch at offset 0"
    ]
    due_ms = pair.core.next_retry_ms
    assert due_ms is not None
    pair.lead(b"whole")
    pair.world.clock.now_ms = max(due_ms, pair.world.clock.now_ms)
    await pair.round()
    assert pair.ours.end_offset == 1
    assert list(pair.core.problems()) == []


async def test_a_partition_that_was_left_takes_no_late_answer(make_pair: Any) -> None:
    pair = await make_pair()
    pair.lead(b"v")
    answer = pair.ask()
    pair.core.leave(pair.key)
    pair.core.follow(pair.following)
    assert pair.take(answer) == []
    assert pair.ours.end_offset == 0, "what was asked for in another epoch says nothing now"
    await pair.round()
    assert pair.ours.end_offset == 1


async def test_a_repeated_partition_in_one_answer_counts_once(make_pair: Any) -> None:
    pair = await make_pair()
    pair.lead(b"v")
    answer = pair.ask()
    answer.responses *= 2
    pair.take(answer)
    assert pair.ours.end_offset == 1


async def test_nothing_is_asked_while_nothing_is_followed(make_pair: Any) -> None:
    pair = await make_pair()
    pair.core.leave(pair.key)
    assert pair.core.request(0, BROKER_EPOCH) is None


async def test_a_leader_that_knows_no_such_replica_refuses_it(make_pair: Any) -> None:
    pair = await make_pair()
    pair.leading.followers.clear()
    pair.lead(b"v")
    answer = pair.ask()
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_follower_s_lag_is_what_is_committed_and_not_here(make_pair: Any) -> None:
    pair = await make_pair(before=lambda ours, theirs: written(theirs, EPOCH, b"a", b"b", b"c"))
    followed = pair.core.find(pair.key)
    data = PartitionData(partition_index=0, high_watermark=3, records=None)
    pair.ask()

    pair.core.take(followed, data, now_ms=0, wall_ms=0)
    assert followed.lag == 3

    pair.core.session.reset()
    pair.core.done(followed)
    await pair.round()
    assert pair.ours.end_offset == 3
    assert followed.lag == 0


async def test_a_log_that_failed_is_never_asked_for(make_pair: Any) -> None:
    """Without writes its log end equals the leader's: it would count as caught up."""
    pair = await make_pair()
    pair.lead(b"a")
    await pair.round()
    pair.ours.abandon()
    followed = pair.core.find(pair.key)
    assert followed is not None
    pair.core.mark_failed(
        followed, RefusedError(ErrorCode.KAFKA_STORAGE_ERROR), pair.world.clock.now_ms
    )
    pair.world.clock.now_ms += 3_600_000
    request = pair.core.request(pair.world.clock.now_ms, BROKER_EPOCH)
    assert request is None or not request.topics
    assert "the log is closed" in next(pair.core.problems())


async def test_a_replica_that_consumers_read_learns_of_a_commit_at_once(make_pair: Any) -> None:
    """The leader answers when its high watermark rises, and not after the longest wait."""
    pair = await make_pair()
    pair.following.consumer_read_ms = pair.world.clock.now_ms
    pair.lead(b"one")
    await pair.round()
    request = pair.core.request(pair.world.clock.now_ms, BROKER_EPOCH)
    assert request is not None

    call = pair.world.fetch(request)

    assert call.is_completed, "this fetch commits the record, and is answered with that"
    answer = call.response(FetchResponse)
    pair.core.session.take(answer)
    assert pair.take(answer) == []
    assert pair.ours.high_watermark == 1
    again = pair.core.request(pair.world.clock.now_ms, BROKER_EPOCH)
    assert again is not None
    assert not pair.world.fetch(again).is_completed, "there is no news that it would not wait for"


async def test_a_replica_without_consumers_asks_for_no_early_answer(make_pair: Any) -> None:
    pair = await make_pair()
    pair.following.consumer_read_ms = pair.world.clock.now_ms
    pair.lead(b"one")
    await pair.round()
    await pair.round()
    pair.world.pass_time(NEAR_READ_MS + 1)

    pair.lead(b"two")
    await pair.round()
    request = pair.core.request(pair.world.clock.now_ms, BROKER_EPOCH)

    assert request is not None
    assert not pair.world.fetch(request).is_completed
