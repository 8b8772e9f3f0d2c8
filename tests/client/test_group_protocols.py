"""Common behaviour of members of a group by every protocol, against a real coordinator."""

from typing import Any

import pytest
import trio

from ottla.client import (
    Consumer,
    ErrorCode,
    RefusedError,
    TopicPartition,
)

A, B, C, D = (TopicPartition("t", index) for index in range(4))
TIMEOUT_S = 60


class ListeningMember:
    """Records the notifications of a member."""

    def __init__(self, name: str, reported: list[str]) -> None:
        self.name = name
        self.reported = reported

    def callbacks(self) -> dict[str, Any]:
        return {
            "on_assigned": self._listener("assigned"),
            "on_revoked": self._listener("revoked"),
            "on_lost": self._listener("lost"),
        }

    def _listener(self, word: str) -> Any:
        async def listen(partitions: tuple[TopicPartition, ...]) -> None:
            numbers = "".join(str(at.partition) for at in sorted(partitions))
            self.reported.append(f"{self.name} {word} {numbers}")

        return listen


async def expel(consumer: Consumer) -> None:
    """Let the coordinator forget a member, as if it had been silent for too long."""
    assert consumer._group is not None
    await consumer._group.driver.leave()


async def test_a_busy_application_lets_a_newcomer_in(groups: Any) -> None:
    await groups.create(2)
    await groups.produce(range(20_000), 2)
    async with groups.open() as first, groups.open() as second:
        first.subscribe(["t"])
        assert len(await first.poll(TIMEOUT_S, record_count_max=1)) == 1
        second.subscribe(["t"])
        numbers = 1
        with trio.fail_after(TIMEOUT_S):
            while not second.assignment:
                # There is always a record at hand: it never has to wait for one.
                numbers += len(await first.poll(1, record_count_max=1))
                await second.poll(0)
        assert numbers < 20_000
        assert len(first.assignment) == len(second.assignment) == 1


async def test_what_was_processed_is_committed_before_it_goes(groups: Any) -> None:
    await groups.create(2)
    await groups.produce(range(100), 2)
    async with groups.open(auto_commit_interval_ms=60_000) as first:
        first.subscribe(["t"])
        await groups.read(first, 100)
        async with groups.open() as second:
            second.subscribe(["t"])
            await groups.until(lambda: len(second.assignment) == 1, first, second)
            (at,) = second.assignment
            assert await second.position(at) == 50


async def test_a_listener_may_commit_what_goes(groups: Any) -> None:
    await groups.create(2)
    await groups.produce(range(100), 2)
    by_hand = {"enable_auto_commit": False}
    async with groups.open(**by_hand) as first, groups.open(**by_hand) as second:

        async def revoked(partitions: tuple[TopicPartition, ...]) -> None:
            await first.commit(dict.fromkeys(partitions, 40))
            first.commit_async(dict.fromkeys(partitions, 44))

        first.subscribe(["t"], on_revoked=revoked)
        await groups.read(first, 100)
        second.subscribe(["t"])
        found: list[int] = []
        with trio.fail_after(TIMEOUT_S):
            while not second.assignment:
                await first.poll(0.02)
                found += [record.offset for record in await second.poll(0.02)]
            while len(found) < 6:
                found += [record.offset for record in await second.poll(0.02)]
        assert found == [44, 45, 46, 47, 48, 49]


async def test_the_end_of_the_block_gives_back_and_commits(groups: Any) -> None:
    await groups.create(2)
    await groups.produce(range(10), 2)
    reported: list[str] = []
    async with groups.open(enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"], **ListeningMember("x", reported).callbacks())
        await groups.read(consumer, 10)
        consumer.commit_async()
    assert reported == ["x assigned 01", "x revoked 01"]
    async with groups.open() as consumer:
        consumer.assign([A, B])
        assert {one.offset for one in (await consumer.committed([A, B])).values()} == {5}


async def test_a_member_may_stop_and_begin_again(groups: Any) -> None:
    await groups.create(2)
    await groups.produce(range(10), 2)
    async with groups.open() as consumer:
        consumer.subscribe(["t"])
        await groups.read(consumer, 10)
        await consumer.unsubscribe()
        assert consumer.assignment == frozenset()
        consumer.assign([A])
        assert await consumer.position(A) == 5
        consumer.assign([])
        consumer.subscribe(["t"])
        await groups.until(lambda: len(consumer.assignment) == 2, consumer)


async def test_who_was_expelled_learns_of_its_loss_and_comes_back(calm_groups: Any) -> None:
    await calm_groups.create(2)
    await calm_groups.produce(range(10), 2)
    reported: list[str] = []
    async with calm_groups.open(enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"], **ListeningMember("x", reported).callbacks())
        await calm_groups.read(consumer, 10)
        await expel(consumer)
        with pytest.raises(RefusedError) as refused:
            await consumer.commit()
        assert refused.value.code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.FENCED_MEMBER_EPOCH,
        )
        assert sorted(await calm_groups.read(consumer, 10)) == list(range(10))
        assert reported == ["x assigned 01", "x lost 01", "x assigned 01"]


async def test_an_error_of_a_commit_that_is_not_awaited_comes_out_of_the_next_poll(
    calm_groups: Any,
) -> None:
    await calm_groups.create(1)
    await calm_groups.produce(range(10), 1)
    async with calm_groups.open(enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        await calm_groups.read(consumer, 10)
        await expel(consumer)
        late = consumer.commit_async()
        with trio.fail_after(TIMEOUT_S), pytest.raises(RefusedError):
            while not late.is_settled or await consumer.poll(0.05):
                await trio.sleep(0.01)
            await consumer.poll(0.05)


async def test_of_many_commits_the_last_one_stands(groups: Any) -> None:
    await groups.create(1)
    await groups.produce(range(200), 1)
    async with groups.open(enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        await consumer.poll(TIMEOUT_S, record_count_max=1)
        commits = [consumer.commit_async({A: number}) for number in range(200)]
        await consumer.commit({A: 77})
        assert all(one.is_settled for one in commits)
        assert (await consumer.committed([A]))[A].offset == 77


async def test_who_does_not_poll_makes_room_and_comes_back_when_it_does(groups: Any) -> None:
    await groups.create(2)
    await groups.produce(range(10), 2)
    reported: list[str] = []
    async with (
        groups.open(poll_interval_ms_max=300) as slow,
        groups.open() as other,
    ):
        slow.subscribe(["t"], **ListeningMember("slow", reported).callbacks())
        await groups.read(slow, 10)
        other.subscribe(["t"])
        with trio.fail_after(TIMEOUT_S):
            while len(other.assignment) < 2 or "slow lost 01" not in reported:
                await other.poll(0.02)
        with trio.fail_after(TIMEOUT_S):
            while not (len(slow.assignment) == len(other.assignment) == 1):
                await slow.poll(0.02)
                await other.poll(0.02)


async def test_a_static_member_keeps_its_partitions_over_a_restart(groups: Any) -> None:
    await groups.create(4)
    reported: list[str] = []
    async with groups.open(group_instance_id="one") as first:
        first.subscribe(["t"], **ListeningMember("one", reported).callbacks())
        async with groups.open(group_instance_id="two") as second:
            second.subscribe(["t"])
            await groups.until(
                lambda: len(first.assignment) == len(second.assignment) == 2, first, second
            )
            had = second.assignment
        before = list(reported)
        assert await first.poll(0.3) == []
        async with groups.open(group_instance_id="two") as second:
            second.subscribe(["t"])
            await groups.until(lambda: second.assignment == had, first, second)
        assert reported == before, "no other member noticed"


async def test_of_two_with_one_instance_id_one_is_refused(groups: Any) -> None:
    await groups.create(2)
    async with (
        groups.open(group_instance_id="same") as first,
        groups.open(group_instance_id="same") as second,
    ):
        first.subscribe(["t"])
        await groups.until(lambda: len(first.assignment) == 2, first)
        second.subscribe(["t"])
        with trio.fail_after(TIMEOUT_S), pytest.raises(RefusedError) as refused:
            while True:
                await first.poll(0.02)
                await second.poll(0.02)
        assert refused.value.code in (
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.UNRELEASED_INSTANCE_ID,
        )


@pytest.mark.parametrize("groups", ["cooperative", "consumer"], indirect=True)
async def test_what_stays_is_read_on_while_the_group_rebalances(groups: Any) -> None:
    await groups.create(4)
    reported: list[str] = []
    async with groups.open() as first, groups.open() as second:
        first.subscribe(["t"], **ListeningMember("first", reported).callbacks())
        await groups.until(lambda: len(first.assignment) == 4, first)
        second.subscribe(["t"], **ListeningMember("second", reported).callbacks())
        await groups.until(
            lambda: len(first.assignment) == len(second.assignment) == 2, first, second
        )
        assert reported[0] == "first assigned 0123"
        assert "first revoked 23" in reported
        assert reported[-1] == "second assigned 23"
        assert not [one for one in reported if "lost" in one]
