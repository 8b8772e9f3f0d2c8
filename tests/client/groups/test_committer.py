"""Commits in the background: in order, together, repeated while that may help, reported once."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock, assert_checkpoints

from ottla.client import Committed, ConsumerConfig, ErrorCode, RefusedError, TopicPartition
from ottla.client.groups.committer import Committer, PendingCommit
from ottla.client.groups.group_member import Membership
from ottla.client.network.background import open_background
from ottla.client.network.connection import ConnectionLostError
from ottla.client.telemetry.measures import CoordinatorMeasures
from ottla.model.ids import Offset
from ottla.wire.messages.offset_commit_request import OffsetCommitRequest
from ottla.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
CONFIG = ConsumerConfig(group_id="g", default_api_timeout_ms=1_000, retry_backoff_ms=100)


class World:
    """A coordinator that takes its time, and the member that commits."""

    key = "g"

    def __init__(self) -> None:
        self.loss_count = 0
        self.epoch = 1
        self.seen: list[dict[int, int]] = []
        self.as_whom: list[int] = []
        self.answers: list[int | Exception | dict[int, int]] = []
        """Answers to the next requests: a code, an error, codes by partition."""
        self.repeats: Callable[[], bool] = lambda: False
        self.untold: list[PendingCommit] = []
        self.committer = Committer(
            self,  # type: ignore[arg-type]
            CONFIG,
            identity=self,
            on_untold=self.untold.append,
        )

    async def request(self, message: OffsetCommitRequest, *_: Any, **__: Any) -> Any:
        await trio.sleep(0.01)
        (topic,) = message.topics
        offsets = {one.partition_index: one.committed_offset for one in topic.partitions}
        self.seen.append(offsets)
        self.as_whom.append(message.generation_id_or_member_epoch)
        answer = self.answers.pop(0) if self.answers else 0
        if isinstance(answer, Exception):
            raise answer
        codes = answer if isinstance(answer, dict) else dict.fromkeys(offsets, answer)
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=index, error_code=codes.get(index, 0)
                        )
                        for index in offsets
                    ],
                )
            ]
        )

    async def forget(self) -> None:
        await trio.lowlevel.checkpoint()

    @property
    def measures(self) -> CoordinatorMeasures:
        return CoordinatorMeasures()

    def membership(self) -> Membership:
        return Membership(self.epoch, "m")

    async def may_repeat(self, code: ErrorCode, membership: Membership) -> bool:
        await trio.lowlevel.checkpoint()
        return self.repeats()

    def submit(self, *offsets: int, at: TopicPartition = A) -> list[PendingCommit]:
        return [self.committer.submit({at: Committed(Offset(one))}) for one in offsets]


@asynccontextmanager
async def open_world() -> AsyncIterator[World]:
    world = World()
    async with open_background() as nursery:
        nursery.start_soon(world.committer.run)
        yield world


async def test_commits_asked_for_meanwhile_travel_together_and_the_last_one_counts(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        (first,) = world.submit(1)
        await trio.sleep(0.001)
        rest = [*world.submit(2, 3), *world.submit(9, at=B), *world.submit(2)]
        await rest[-1]

        assert world.seen == [{0: 1}, {0: 2, 1: 9}]
        assert all(one.is_settled and one.error is None for one in [first, *rest])


async def test_a_later_commit_waits_for_an_earlier_one_that_is_repeated(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        world.answers = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ConnectionLostError("cut")]
        world.submit(1)
        await trio.sleep(0.001)
        await world.submit(2)[0]

        assert world.seen == [{0: 1}, {0: 1}, {0: 1}, {0: 2}]


async def test_each_listener_receives_its_own_partitions_only(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        world.answers = [{0: ErrorCode.OFFSET_METADATA_TOO_LARGE}]
        bad, good = world.committer.submit({A: Committed(Offset(1))}), world.submit(1, at=B)[0]
        await good
        with pytest.raises(RefusedError) as refused:
            await bad
        assert refused.value.code is ErrorCode.OFFSET_METADATA_TOO_LARGE


async def test_the_next_epoch_takes_what_the_last_one_could_not(autojump_clock: MockClock) -> None:
    async with open_world() as world:

        def learn() -> bool:
            world.epoch = 2
            return True

        world.repeats = learn
        world.answers = [ErrorCode.STALE_MEMBER_EPOCH]
        await world.submit(1)[0]

        assert world.as_whom == [1, 2]


async def test_what_was_read_before_all_was_lost_is_not_committed(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        (late,) = world.submit(1)
        world.loss_count += 1
        (good,) = world.submit(2, at=B)
        await good
        with pytest.raises(RefusedError) as refused:
            await late

        assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
        assert world.seen == [{1: 2}]


async def test_a_commit_of_lost_records_is_refused_although_the_member_has_joined_again(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        late = world.committer.submit({A: Committed(Offset(1))}, is_late=True)
        with pytest.raises(RefusedError) as refused:
            await late

        assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
        assert world.seen == []


async def test_losing_all_during_the_repetitions_ends_them(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        world.answers = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        (late,) = world.submit(1)
        await trio.sleep(0.05)
        world.loss_count += 1
        with pytest.raises(RefusedError):
            await late
        assert world.seen == [{0: 1}]


async def test_it_gives_up_when_the_time_is_over_and_goes_on_with_the_next(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        world.answers = [ConnectionLostError("cut")] * 10
        (first,) = world.submit(1)
        with pytest.raises(ConnectionLostError):
            await first
        world.answers = []
        await world.submit(2)[0]


async def test_an_error_is_raised_where_it_is_awaited_or_else_once_by_the_poll(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        world.answers = [ErrorCode.UNKNOWN_MEMBER_ID]
        (unwatched,) = world.submit(1)
        await world.committer.settled()
        assert world.untold == [unwatched]
        assert not unwatched._is_watched

        with pytest.raises(RefusedError):
            await unwatched
        assert unwatched._is_watched, "so the poll says nothing of it any more"

        world.answers = [ErrorCode.UNKNOWN_MEMBER_ID]
        world.committer.submit({A: Committed(Offset(1))}, is_watched=True)
        await world.committer.settled()
        assert world.untold == [unwatched]


async def test_nothing_to_commit_is_done_at_once(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        with assert_checkpoints():
            await world.committer.submit({})
        assert world.seen == []
