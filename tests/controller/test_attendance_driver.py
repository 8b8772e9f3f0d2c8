"""Brokers' open calls at a controller in virtual time: events that end a session early, and
others."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from ottla.controller.attendance_driver import PROBE_PAUSES_MS
from ottla.jepsen.in_memory_controller import registration
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch
from ottla.node.address_probe import ProbeResult
from ottla.proto import controller_pb2 as pb
from ottla.rpc.controller_methods import ATTEND_MS

from .test_controller_driver import SESSION_S, ControllerBench, playing

SOON_S = 0.6
"""By then a certain death has fenced its broker."""


@dataclass
class Addresses:
    """Results of connecting to the addresses of brokers."""

    says: Callable[[], ProbeResult] = lambda: ProbeResult.ACCEPTED
    tried: list[tuple[str, int]] = field(default_factory=list)

    async def __call__(self, host: str, port: int, /) -> ProbeResult:
        await trio.sleep(0.001)
        self.tried.append((host, port))
        return self.says()

    def refuse(self) -> None:
        self.says = lambda: ProbeResult.REFUSED


@dataclass
class Call:
    """A broker's open call."""

    scope: trio.CancelScope
    ended: trio.Event
    refusal: RefusedError | None = None

    def cut_off(self) -> None:
        """Close its connection."""
        self.scope.cancel()


class Cluster:
    """A played controller, brokers' addresses, and their calls."""

    def __init__(
        self, played: ControllerBench, addresses: Addresses, nursery: trio.Nursery
    ) -> None:
        self.played = played
        self.addresses = addresses
        self._nursery = nursery
        self.heartbeats = trio.CancelScope()

    def call(self, broker: int) -> Call:
        call = Call(trio.CancelScope(), trio.Event())
        self._nursery.start_soon(self._attend, broker, call)
        return call

    async def _attend(self, broker: int, call: Call) -> None:
        request = pb.AttendRequest(
            broker_id=broker,
            broker_epoch=self.played.epochs.get(broker, 0),
            listener_name="PLAINTEXT",
        )
        with call.scope:
            try:
                await self.played.attendances.attend(request)
            except RefusedError as refusal:
                call.refusal = refusal
        call.ended.set()

    async def send_heartbeat(self) -> None:
        with self.heartbeats:
            await self.played.keep_beating(1, 2)

    async def kill(self, call: Call) -> None:
        """End the process of the broker that made a call, in the middle between heartbeats."""
        await trio.sleep(1)
        self.heartbeats.cancel()
        self.addresses.refuse()
        call.cut_off()


@asynccontextmanager
async def cluster(*, is_early: bool = True) -> AsyncIterator[Cluster]:
    """Two brokers with heartbeats, at a controller that has led for longer than a session."""
    addresses = Addresses()
    async with (
        playing(probe=addresses, is_early=is_early) as played,
        trio.open_nursery() as nursery,
    ):
        await played.register(1, 2)
        found = Cluster(played, addresses, nursery)
        nursery.start_soon(found.send_heartbeat)
        yield found
        assert not played.errors.counts
        nursery.cancel_scope.cancel()


async def settled(found: Cluster) -> Call:
    """Return the open call of broker 1, whose address has accepted a connection."""
    call = found.call(1)
    await trio.sleep(SESSION_S + 1)
    assert found.addresses.tried == [("broker-1", 9092)]
    return call


async def test_a_broker_whose_process_is_gone_is_fenced_at_once(autojump_clock: MockClock) -> None:
    async with cluster() as found:
        call = await settled(found)

        await found.kill(call)
        await trio.sleep(SOON_S)

        assert found.played.is_fenced(1)
        assert not found.played.is_fenced(2)
        assert found.played.controller.counts.early_ends.value == 1


async def test_the_next_incarnation_registers_without_waiting_for_the_old_session(
    autojump_clock: MockClock,
) -> None:
    async with cluster() as found:
        call = await settled(found)
        await found.kill(call)
        again = registration(1, incarnation=2)

        with pytest.raises(RefusedError) as refused:
            await found.played.controller.register(again)
        await trio.sleep(SOON_S)
        await found.played.controller.register(again)

        assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


async def test_it_can_be_switched_off(autojump_clock: MockClock) -> None:
    async with cluster(is_early=False) as found:
        call = found.call(1)
        await trio.sleep(SESSION_S + 1)

        await found.kill(call)
        await trio.sleep(SESSION_S - 2.5)

        assert not found.played.is_fenced(1)
        assert found.addresses.tried == []


@pytest.mark.parametrize("probed", [ProbeResult.ACCEPTED, ProbeResult.UNKNOWN])
async def test_an_aborted_call_alone_fences_no_broker(
    autojump_clock: MockClock, probed: ProbeResult
) -> None:
    """A reset, a proxy's end, GOAWAY; or a machine that is out of reach."""
    async with cluster() as found:
        call = await settled(found)
        await found.kill(call)
        found.addresses.says = lambda: probed

        await trio.sleep(SESSION_S - 2.5)

        assert not found.played.is_fenced(1)
        assert len(found.addresses.tried) - 1 == (
            len(PROBE_PAUSES_MS) if probed is ProbeResult.ACCEPTED else 1
        )


async def test_a_listener_that_is_closed_a_moment_after_the_connection_is_found_closed(
    autojump_clock: MockClock,
) -> None:
    async with cluster() as found:
        call = await settled(found)
        await found.kill(call)
        answers = iter([ProbeResult.ACCEPTED, ProbeResult.REFUSED])
        found.addresses.says = lambda: next(answers)

        await trio.sleep(SOON_S)

        assert found.played.is_fenced(1)


async def test_a_broker_that_falls_silent_with_its_call_open_keeps_its_session(
    autojump_clock: MockClock,
) -> None:
    """Stopped by SIGSTOP, or cut off: its connection has not closed."""
    async with cluster() as found:
        await settled(found)
        found.heartbeats.cancel()
        found.addresses.refuse()

        await trio.sleep(SESSION_S - 2.5)

        assert not found.played.is_fenced(1)


async def test_a_broker_that_calls_again_is_not_fenced_though_its_address_refuses(
    autojump_clock: MockClock,
) -> None:
    async with cluster() as found:
        call = await settled(found)
        await found.kill(call)
        await trio.sleep(0.2)

        found.call(1)
        await trio.sleep(SESSION_S - 2.7)

        assert not found.played.is_fenced(1)


async def test_a_broker_whose_heartbeat_comes_is_not_fenced_though_its_address_refuses(
    autojump_clock: MockClock,
) -> None:
    async with cluster() as found:
        call = await settled(found)
        await found.kill(call)
        await trio.sleep(0.2)

        await found.played.send_heartbeat(1)
        await trio.sleep(SESSION_S - 2.5)

        assert not found.played.is_fenced(1)


async def test_a_controller_that_stood_still_waits_for_what_the_broker_said_meanwhile(
    autojump_clock: MockClock,
) -> None:
    """Each look takes long by its clock: none counts."""
    async with cluster() as found:
        call = await settled(found)
        await found.kill(call)

        async def stumble() -> None:
            while True:
                await trio.sleep(0.04)
                found.played.clock.stall_ms += 200

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stumble)
            await trio.sleep(0.6)
            nursery.cancel_scope.cancel()

        assert not found.played.is_fenced(1)


async def test_a_controllers_failover_fences_no_broker(autojump_clock: MockClock) -> None:
    """Calls end with the leadership, and brokers are at another controller then."""
    async with cluster() as found:
        call = await settled(found)
        found.addresses.refuse()
        found.heartbeats.cancel()

        found.played.quorum.elect(None)
        await call.ended.wait()
        found.played.quorum.elect(Epoch(2))
        await trio.sleep(SESSION_S - 1)

        assert call.refusal is not None
        assert call.refusal.code is ErrorCode.NOT_CONTROLLER
        assert not found.played.is_fenced(1)
        assert len(found.addresses.tried) == 1


async def test_a_leadership_that_is_lost_and_won_again_at_once_forgets_what_was_seen(
    autojump_clock: MockClock,
) -> None:
    async with cluster() as found:
        call = await settled(found)
        await found.kill(call)
        await wait_all_tasks_blocked()

        found.played.quorum.elect(None)
        found.played.quorum.elect(Epoch(2))
        await trio.sleep(SESSION_S - 1)

        assert not found.played.is_fenced(1)


async def test_a_new_controller_tries_no_address_within_its_first_session(
    autojump_clock: MockClock,
) -> None:
    async with cluster() as found:
        call = found.call(1)
        await trio.sleep(SESSION_S - 1.5)

        await found.kill(call)
        await trio.sleep(SESSION_S - 2.5)

        assert not found.played.is_fenced(1)
        assert found.addresses.tried == []


async def test_a_newer_call_ends_the_one_before_it(autojump_clock: MockClock) -> None:
    async with cluster() as found:
        first = found.call(1)
        await wait_all_tasks_blocked()

        second = found.call(1)
        await first.ended.wait()

        assert first.refusal is None
        assert not second.ended.is_set()


async def test_an_open_call_is_answered_after_a_minute(autojump_clock: MockClock) -> None:
    async with cluster() as found:
        call = found.call(1)
        before = trio.current_time()

        await call.ended.wait()

        assert trio.current_time() - before == pytest.approx(ATTEND_MS / 1000)
        assert call.refusal is None


async def test_only_a_registered_broker_may_keep_a_call_open(autojump_clock: MockClock) -> None:
    async with cluster() as found:
        stranger = found.call(9)
        await stranger.ended.wait()

        assert stranger.refusal is not None
        assert stranger.refusal.code is ErrorCode.BROKER_ID_NOT_REGISTERED


async def test_many_deaths_at_once_are_all_noticed(autojump_clock: MockClock) -> None:
    count = 40
    async with cluster() as found:
        await found.played.register(*range(3, 3 + count))
        ids = range(3, 3 + count)
        beating = trio.CancelScope()

        async def send_heartbeat() -> None:
            with beating:
                await found.played.keep_beating(*ids)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_heartbeat)
            calls = [found.call(one) for one in ids]
            await trio.sleep(SESSION_S + 1)
            assert len(found.addresses.tried) == count

            beating.cancel()
            found.addresses.refuse()
            for call in calls:
                call.cut_off()
            await trio.sleep(1)

            assert all(found.played.is_fenced(one) for one in ids)
