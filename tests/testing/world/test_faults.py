"""Each kind of fault: its effect on a program, its end, and the moments at which it begins."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import trio

import ottla.testing.world as world
from ottla.client.producer import open_producer
from ottla.model.settings.client import ProducerConfig
from tests.testing.world.test_run import RECORDS, copy_orders


async def send_ten(bootstrap: str, times: list[float], linger_ms: int = 0) -> None:
    config = ProducerConfig(linger_ms=linger_ms, delivery_timeout_ms=120_000)
    async with open_producer(bootstrap, config) as producer:
        for number in range(10):
            world.mark("before send")
            await (await producer.send("letters", b"%d" % number))
            times.append(trio.current_time())


async def send_ten_with(
    w: world.World, times: list[float], *, replicas: int = 1
) -> list[world.WrittenRecord]:
    await w.create_topic("letters", replication_factor=replicas)
    instance = w.start("sender", send_ten, w.bootstrap, times, runtime="trio")
    while instance.is_running or not instance.start_count or len(times) < 10:
        await w.sleep(0.1)
    return await w.read("letters")


def run_sender(
    *faults: world.Fault, brokers: int = 1, replicas: int = 1
) -> tuple[list[bytes | None], list[float], world.RunReport]:
    """Return the values in the topic, the times of the acknowledgements, and the report."""
    found: list[world.WrittenRecord] = []
    times: list[float] = []

    async def scenario(w: world.World) -> None:
        found.extend(await send_ten_with(w, times, replicas=replicas))

    report = world.run(
        scenario, world.ClusterPlan(brokers=brokers), world.FaultSchedule(tuple(faults))
    )
    return [one.value for one in found], times, report


ONCE = [b"%d" % number for number in range(10)]


def longest_wait_s(times: list[float]) -> float:
    return max(later - earlier for earlier, later in pairwise(times))


def fault_texts(report: world.RunReport) -> list[str]:
    return [event.text for event in report.timeline if event.kind == "fault"]


def test_a_lost_response_makes_an_idempotent_producer_send_again() -> None:
    values, _, report = run_sender(world.LoseAnswer(0, world.Request("Produce", 3)))

    assert values == ONCE
    assert fault_texts(report) == ["lose the response to the 3rd Produce request of sender"]
    sent = [event.text for event in report.timeline if event.text.startswith("Produce")]
    assert len([text for text in sent if text.startswith("Produce 11")]) == 2


def test_the_next_response_after_a_time_is_lost() -> None:
    values, _, report = run_sender(world.LoseAnswer(0, world.At(0.012)))

    assert values == ONCE
    assert any("is lost" in text for text in fault_texts(report))


def test_a_pause_delays_a_program_and_ends() -> None:
    values, times, _ = run_sender(world.Pause(0, world.Request("Produce", 4), seconds=7.0))

    assert values == ONCE
    assert 7.0 <= longest_wait_s(times) < 7.5


def test_a_slow_instance_waits_longer_for_each_response() -> None:
    _, quick, _ = run_sender()
    values, slow, _ = run_sender(
        world.SlowInstance(0, world.Request("Produce", 2), seconds=60.0, delay_s=0.4)
    )

    assert values == ONCE
    assert slow[-1] - slow[0] > 10 * (quick[-1] - quick[0])


def test_a_partition_holds_messages_back_until_it_heals() -> None:
    values, times, _ = run_sender(world.Partition(0, 0, world.Request("Produce", 3), seconds=4.0))

    assert values == ONCE
    assert 4.0 <= longest_wait_s(times) < 5.0


def test_a_killed_broker_starts_again() -> None:
    values, times, report = run_sender(
        world.KillBroker(0, world.Request("Produce", 3), restart_after_s=4.0)
    )

    assert values == ONCE
    assert longest_wait_s(times) >= 4.0
    assert [event.text for event in report.timeline if event.where == "broker-1"]


def test_another_broker_takes_over_from_a_killed_one() -> None:
    values, _, _ = run_sender(
        world.KillBroker(0, world.Request("Produce", 3), restart_after_s=30.0),
        world.KillBroker(1, world.Request("Produce", 6), restart_after_s=30.0),
        brokers=3,
        replicas=3,
    )

    assert values == ONCE


def test_a_full_disk_of_a_broker_delays_writes_until_it_has_room() -> None:
    values, times, report = run_sender(world.FillDisk(0, world.Request("Produce", 3), seconds=5.0))

    assert values == ONCE
    assert longest_wait_s(times) >= 4.0
    assert "the disk has room again" in [event.text for event in report.timeline]


def test_a_mark_is_a_moment() -> None:
    sent_counts: dict[str, int] = {}
    for moment in (world.Mark("before send", 5), world.Request("Produce", 5)):
        found: list[world.WrittenRecord] = []

        async def scenario(w: world.World, found: list[world.WrittenRecord] = found) -> None:
            await w.create_topic("letters")
            w.start("sender", send_ten, w.bootstrap, [], runtime="trio", restarts=False)
            await w.sleep(10)
            found.extend(await w.read("letters"))

        kill = world.Kill(0, moment, restart_after_s=3_600.0)
        world.run(scenario, faults=world.FaultSchedule((kill,)))
        sent_counts[type(moment).__name__] = len(found)

    # Nothing that the program sends after the mark leaves its machine.
    assert sent_counts == {"MarkMoment": 4, "Request": 5}


def test_a_response_is_handled_before_a_kill_that_waits_for_it() -> None:
    counts: list[tuple[int, int]] = []

    async def scenario(w: world.World) -> None:
        times: list[float] = []
        await w.create_topic("letters")
        w.start("sender", send_ten, w.bootstrap, times, runtime="trio", restarts=False)
        await w.sleep(10)
        counts.append((len(times), len(await w.read("letters"))))

    for when in ("sent", "answered"):
        moment = world.Request("Produce", 5, "sent" if when == "sent" else "answered")
        kill = world.Kill(0, moment, restart_after_s=3_600.0)
        world.run(scenario, faults=world.FaultSchedule((kill,)))

    assert counts == [(4, 5), (5, 5)]


def test_a_clean_stop_makes_the_group_rebalance() -> None:
    starts: list[int] = []

    async def scenario(w: world.World) -> None:
        await w.create_topic("orders", partition_count=2)
        await w.create_topic("copies")
        sent = await w.produce("orders", RECORDS)
        for name in "ab":
            w.start(name, copy_orders, w.bootstrap, runtime="trio")
        await w.settle()
        starts.extend(one.start_count for one in w.instances.values())
        world.at_least_once(sent, await w.read("copies"), key=lambda record: record.value)

    report = world.run(
        scenario,
        faults=world.FaultSchedule((world.Stop(1, world.Request("OffsetCommit", 1)),)),
    )

    assert starts == [1, 2]
    assert report.seconds < 30, "a member that leaves is not waited for"


def test_faults_of_an_index_beyond_the_instances_affect_one_of_them() -> None:
    values, times, _ = run_sender(world.Pause(7, world.Request("Produce", 4), seconds=7.0))

    assert values == ONCE
    assert longest_wait_s(times) >= 7.0


@pytest.mark.parametrize(
    "moment", [world.Request("EndTxn", 1), world.Mark("never", 1), world.Request("Produce", 99)]
)
def test_a_moment_that_never_comes_does_not_hold_up_a_run(moment: Any) -> None:
    report = world.run(_settling(copy_orders), faults=world.FaultSchedule((world.Kill(0, moment),)))

    assert fault_texts(report) == []
    assert report.seconds < 10


def _settling(program: Callable[..., Any]) -> Callable[[world.World], Any]:
    async def scenario(w: world.World) -> None:
        await w.create_topic("orders")
        await w.create_topic("copies")
        await w.produce("orders", RECORDS)
        w.start("a", program, w.bootstrap, runtime="trio")
        await w.settle()

    return scenario
