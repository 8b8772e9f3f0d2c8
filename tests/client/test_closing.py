"""A client is closed at whatever moment, and whatever its broker does: its block ends, soon."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import pytest
import trio

from ottla.client import (
    Admin,
    Consumer,
    ConsumerConfig,
    ErrorCode,
    Producer,
    ProducerConfig,
    RefusedError,
    TopicPartition,
    open_admin,
    open_consumer,
    open_producer,
)
from ottla.jepsen.fuzz.one_broker import BOOTSTRAP, TOPIC, OneBroker
from ottla.jepsen.world.whole.loop import Loop, run_in_virtual_time
from ottla.model.errors import OttlaError
from ottla.wire.messages.leave_group_request import LeaveGroupRequest
from tests.search_length import length

AT = TopicPartition(TOPIC, 0)

CLOSE_S_MAX = 10.0
"""Virtual seconds: leaving a group takes part of it with a silent broker; an endless wait takes
all."""
STEPS = [*range(24), *range(24, 96, 3)]
"""Turns of the loop before the client is closed."""
SHARES = length(3, 1)
"""Number of shares of the moments at which a member is closed. Each end with each protocol takes
one share, and any three consecutive ends take all."""
INSTANTS = [0.01, 0.5, 2.999, 3.0, 3.001, 3.1, 4.0, 7.0]
"""Seconds before it is closed: the first join is held for three."""
SILENCES = [None, *range(12)]
"""Number of answered requests; None for all."""


class EndError(Exception):
    """The application's own trouble, which ends the block."""


async def by_end(client: Any) -> None:
    """Come to the end of the block."""


async def by_error(client: Any) -> None:
    raise EndError


async def by_unsubscribing(consumer: Consumer) -> None:
    await consumer.unsubscribe()


async def by_unsubscribing_twice(consumer: Consumer) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(consumer.unsubscribe)
        nursery.start_soon(consumer.unsubscribe)


async def by_subscribing_again(consumer: Consumer) -> None:
    consumer.subscribe(["other"])
    await consumer.unsubscribe()
    consumer.subscribe([TOPIC])
    await consumer.poll(0.1)


ENDS: dict[str, Callable[[Any], Awaitable[None]]] = {
    "end": by_end,
    "error": by_error,
    "unsubscribe": by_unsubscribing,
    "twice": by_unsubscribing_twice,
    "again": by_subscribing_again,
}
CONFIGS = {
    "defaults": ConsumerConfig(group_id="g"),
    "eager": ConsumerConfig(group_id="g", partition_assignment_strategy=("range",)),
    "cooperative": ConsumerConfig(
        group_id="g", partition_assignment_strategy=("cooperative-sticky",)
    ),
    "consumer": ConsumerConfig(group_id="g", group_protocol="consumer"),
    "static": ConsumerConfig(group_id="g", group_instance_id="i"),
    "no group": ConsumerConfig(),
}


def close_seconds(
    open_client: Callable[[], AbstractAsyncContextManager[Any]],
    use: Callable[[Any], Awaitable[None]],
    end: Callable[[Any], Awaitable[None]],
    *,
    steps: int = 0,
    wait_s: float = 0.0,
    broker: OneBroker,
) -> float:
    """Return the duration of closing, in virtual time, after some steps and seconds of use."""

    async def main(loop: Loop) -> float:
        broker.use()
        end_began_s = 0.0
        with trio.move_on_after(1_000) as everything, suppress(EndError, OttlaError):
            async with open_client() as client:
                with trio.CancelScope() as using:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(patiently, use, client)
                        for _ in range(steps):
                            await trio.lowlevel.checkpoint()
                        if wait_s:
                            await trio.sleep(wait_s)
                        using.cancel()
                end_began_s = trio.current_time()
                await end(client)
        assert not everything.cancelled_caught, "it hangs"
        return trio.current_time() - end_began_s

    return run_in_virtual_time(main, seed=steps)


async def patiently(use: Callable[[Any], Awaitable[None]], client: Any) -> None:
    """Use a client whose calls may fail because its broker is silent."""
    with suppress(OttlaError):
        await use(client)


async def subscribe_and_poll(consumer: Consumer) -> None:
    consumer.subscribe([TOPIC])
    while True:
        await consumer.poll(0.2)


async def subscribe_only(consumer: Consumer) -> None:
    consumer.subscribe([TOPIC])


async def assign_and_poll(consumer: Consumer) -> None:
    consumer.assign([AT])
    while True:
        await consumer.poll(0.2)


async def send_some(producer: Producer) -> None:
    for number in range(100):
        await producer.send(TOPIC, b"%d" % number)
        await trio.sleep(0.1)


async def ask_of_all(admin: Admin) -> None:
    await admin.describe_cluster()
    await admin.describe_group("g")


GROUPS = ["defaults", "eager", "cooperative", "consumer", "static"]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("protocol", GROUPS)
def test_a_member_of_a_group_can_be_closed_at_every_step(protocol: str, end: str) -> None:
    moments: list[dict[str, Any]] = [{"steps": steps} for steps in STEPS]
    moments += [{"wait_s": at_s} for at_s in INSTANTS]
    share = (GROUPS.index(protocol) + list(ENDS).index(end)) % SHARES
    for number, moment in enumerate(moments):
        if number % SHARES != share:
            continue
        took_s = close_seconds(
            lambda: open_consumer(BOOTSTRAP, CONFIGS[protocol]),
            subscribe_only if number % 4 == 2 else subscribe_and_poll,
            ENDS[end],
            broker=OneBroker(),
            **moment,
        )
        assert took_s < CLOSE_S_MAX, moment


@pytest.mark.parametrize("protocol", [*GROUPS, "no group"])
def test_a_consumer_can_be_closed_whichever_answer_never_comes(protocol: str) -> None:
    for silent_from in SILENCES:
        for wait_s in (0.5, 5.0, 45.0):
            took_s = close_seconds(
                lambda: open_consumer(BOOTSTRAP, CONFIGS[protocol]),
                assign_and_poll if protocol == "no group" else subscribe_and_poll,
                by_end,
                wait_s=wait_s,
                broker=OneBroker(silent_from=silent_from),
            )
            assert took_s < CLOSE_S_MAX, (silent_from, wait_s)


@pytest.mark.parametrize("end", ["end", "error"])
@pytest.mark.parametrize("acks", ["all", "0"])
def test_a_producer_can_be_closed_at_every_step_and_whichever_answer_never_comes(
    acks: str, end: str
) -> None:
    config = ProducerConfig(
        acks=acks,
        enable_idempotence=acks == "all",
        delivery_timeout_ms=3_000,
        request_timeout_ms=1_000,
        block_ms_max=1_000,
    )
    situations: list[dict[str, Any]] = [{"steps": steps} for steps in STEPS]
    situations += [{"steps": 2 * one, "silent_from": one} for one in range(8)]
    situations += [{"wait_s": 2.0, "silent_from": one} for one in range(8)]
    for situation in situations:
        took_s = close_seconds(
            lambda: open_producer(BOOTSTRAP, config),
            send_some,
            ENDS[end],
            broker=OneBroker(silent_from=situation.pop("silent_from", None)),
            **situation,
        )
        assert took_s < CLOSE_S_MAX, situation


@pytest.mark.parametrize(
    ("open_client", "use"),
    [
        (lambda: open_consumer(BOOTSTRAP, CONFIGS["defaults"]), subscribe_and_poll),
        (lambda: open_consumer(BOOTSTRAP, CONFIGS["consumer"]), subscribe_and_poll),
        (lambda: open_consumer(BOOTSTRAP, CONFIGS["no group"]), assign_and_poll),
        (lambda: open_producer(BOOTSTRAP), send_some),
        (lambda: open_admin(BOOTSTRAP), ask_of_all),
    ],
)
def test_a_client_can_be_closed_while_no_broker_accepts_it(
    open_client: Callable[[], AbstractAsyncContextManager[Any]],
    use: Callable[[Any], Awaitable[None]],
) -> None:
    for moment in ({"steps": 1}, {"steps": 20}, {"wait_s": 0.6}, {"wait_s": 15.0}):
        broker = OneBroker(never_connects=True)
        assert close_seconds(open_client, use, by_end, broker=broker, **moment) < CLOSE_S_MAX


def test_a_member_that_is_closed_during_a_held_join_says_that_it_leaves() -> None:
    broker = OneBroker()

    close_seconds(
        lambda: open_consumer(BOOTSTRAP, CONFIGS["defaults"]),
        subscribe_and_poll,
        by_end,
        wait_s=1.0,
        broker=broker,
    )

    left = [one for one in broker.asked if isinstance(one, LeaveGroupRequest)]
    assert [one.members[0].member_id for one in left] == ["m"]


async def test_a_callback_is_refused_to_leave_the_group() -> None:
    reported: list[ErrorCode] = []

    async def leave(partitions: tuple[TopicPartition, ...]) -> None:
        with pytest.raises(RefusedError) as refused:
            await consumer.unsubscribe()
        reported.append(refused.value.code)

    OneBroker().use()
    with trio.fail_after(60):
        async with open_consumer(BOOTSTRAP, CONFIGS["consumer"]) as consumer:
            consumer.subscribe([TOPIC], on_assigned=leave, on_revoked=leave)
            while not reported:
                await consumer.poll(0.05)
    assert reported == [ErrorCode.INVALID_REQUEST] * 2
