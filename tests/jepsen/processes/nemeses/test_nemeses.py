"""Every nemesis disturbs a real cluster and heals it: acknowledged records are there afterwards.

`OTTLA_NEMESES_SECONDS=600` continues with random ones for longer; `OTTLA_NEMESES=kill,flip`
restricts them; `OTTLA_NEMESES_SEED` draws the same again (their timing depends on the machine).
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.processes.abilities import NOTHING, Abilities, Ability
from ottla.jepsen.processes.cluster import ProcessCluster, open_cluster
from ottla.jepsen.processes.nemeses.mixer import Mixer
from ottla.jepsen.processes.nemeses.nemesis import Nemesis
from ottla.jepsen.processes.nemeses.table import CLASSES, NEMESES

SECONDS = float(os.environ.get("OTTLA_NEMESES_SECONDS", "0"))
NAMES = tuple(filter(None, os.environ.get("OTTLA_NEMESES", "").split(","))) or tuple(NEMESES)
FAULT_S = 6.0 if SECONDS else 0.5
"""Seconds of a fault: a long search lets sessions end; a short one only starts and heals each
fault."""
TOPIC, PARTITIONS = "q0", 3
FIRST_BYTES, RECORD_BYTES = 4_000, 100
"""Large records first, so that there are closed segments to damage; a long load is of small ones,
lest it fills the disks."""
NEMESES_A_RUN = 2
TRIES = 5
BATCH = 100

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3_600)]


class Load:
    """A producer that keeps count of what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        self.sent = 0
        self._bootstrap = bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        config = {"segment.bytes": str(1 << 20), "min.insync.replicas": "2"}
        for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, config=config)]).values():
            future.result(60)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
            }
        )

    def send(self, record_bytes: int = RECORD_BYTES) -> None:
        """Send some more; what is not acknowledged yet will be, or will not."""
        for _ in range(BATCH):
            number, self.sent = self.sent, self.sent + 1
            self._producer.produce(
                TOPIC,
                number.to_bytes(8, "big") + bytes(record_bytes),
                partition=number % PARTITIONS,
                on_delivery=lambda error, message: (
                    self.acknowledged[message.partition()].append(
                        int.from_bytes(message.value()[:8], "big")
                    )
                    if error is None
                    else None
                ),
            )
        self._producer.poll(0.1)

    def finish(self) -> int:
        """Wait for the last acknowledgements; return how many records never had one."""
        return int(self._producer.flush(60))

    def read(self) -> dict[int, list[int]]:
        """Read all there is, by partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "g",
                "check.crcs": True,
                "enable.partition.eof": True,
            }
        )
        found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        try:
            consumer.assign([TopicPartition(TOPIC, number, 0) for number in found])
            ended: set[int] = set()
            while len(ended) < PARTITIONS:
                for message in consumer.consume(1_000, 10):
                    if message.error() is not None:
                        assert message.error().name() == "_PARTITION_EOF", message.error()
                        ended.add(message.partition())
                    else:
                        found[message.partition()].append(
                            int.from_bytes(message.value()[:8], "big")
                        )
        finally:
            consumer.close()
        return found


async def hurt_and_heal(
    nemesis: Nemesis, dice: random.Random, load: Load, cluster: ProcessCluster
) -> bool:
    """Do one fault under load; return whether anything was done."""
    count = nemesis.count
    did = await nemesis.inject(dice)
    print(f"{time.strftime('%X')} {nemesis.name}: {did}")
    with trio.move_on_after(FAULT_S):
        while True:
            await trio.to_thread.run_sync(load.send)
            await trio.sleep(0.1)
    healed = await nemesis.heal()
    took_s = await cluster.wait_healthy()
    print(f"  healed {healed}, healthy {took_s:.1f} s later")
    assert nemesis.count == count + bool(did)
    assert cluster.network.is_well
    assert all(node.held_by is None for node in cluster.nodes.values())
    return bool(did)


def deal(names: list[str], dice: random.Random) -> Iterator[str]:
    """Deal each once, and then, if there is time, without end."""
    yield from names
    while SECONDS:
        yield dice.choice(names)


LONG = (("here", False), ("here", True), ("unprivileged", False))
SHORT = (("here", True), ("unprivileged", False))
BEHIND_PROXIES = ("pause", "partition-controller", "reset")
"""Nemeses of a short run without privileges: those that proxies inject differently."""


@pytest.mark.parametrize(("place", "flush"), LONG if SECONDS else SHORT)
async def test_after_every_fault_all_that_was_acknowledged_is_there(
    tmp_path: Path, abilities: Abilities, place: str, flush: bool
) -> None:
    seed = int(os.environ.get("OTTLA_NEMESES_SEED", random.randrange(1 << 32)))
    dice = random.Random(seed)
    if place == "unprivileged":
        abilities = NOTHING
    wanted = dealt(abilities, dice, flush=flush)
    if not wanted:
        pytest.skip(f"this machine lacks what these need: {abilities.missing}")
    print(f"OTTLA_NEMESES_SEED={seed}, {', '.join(wanted)}")
    async with open_cluster(tmp_path, flush=flush, abilities=abilities) as cluster:
        load = await trio.to_thread.run_sync(Load, cluster.bootstrap)
        for _ in range(10):
            await trio.to_thread.run_sync(load.send, FIRST_BYTES)
        assert await trio.to_thread.run_sync(load.finish) == 0
        nemeses = {name: NEMESES[name](cluster, dice, RunFacts()) for name in wanted}
        with trio.move_on_after(SECONDS or 300):
            for name in deal(wanted, dice):
                with trio.CancelScope(shield=True):
                    done = await hurt_and_heal(nemeses[name], dice, load, cluster)
                    for _ in range(TRIES - 1):
                        # What it may hurt depends on who is in sync at this moment.
                        if done or name == Mixer.name or SECONDS:
                            break
                        await trio.sleep(1)
                        done = await hurt_and_heal(nemeses[name], dice, load, cluster)
                assert done or name == Mixer.name or SECONDS, f"{name} did nothing"
                await trio.lowlevel.checkpoint()  # no fault is left half done when time is over
        assert await trio.to_thread.run_sync(load.finish) == 0
        found = await trio.to_thread.run_sync(load.read)
        for partition, numbers in load.acknowledged.items():
            assert found[partition] == sorted(numbers), f"partition {partition}"
        assert await cluster.stop_all() == []
        assert [death for death in cluster.deaths if not death.was_expected] == []
        for path in cluster.collect_logs(tmp_path / "logs"):
            assert "Traceback" not in path.read_text(), path.read_text()
    assert load.sent > BATCH


def dealt(abilities: Abilities, dice: random.Random, *, flush: bool) -> list[str]:
    """Return the nemeses for one cluster, as the machine and its promises allow."""
    wanted = [
        name
        for name in NAMES
        if all(one in abilities for one in CLASSES[name].needs)
        and (flush or not CLASSES[name].needs_flush)
        and not CLASSES[name].needs_store
    ]
    if SECONDS:
        return wanted
    if not abilities.has_namespaces:
        return [name for name in wanted if name in BEHIND_PROXIES]
    # All take their turn over many short runs.
    return dice.sample(wanted, min(NEMESES_A_RUN, len(wanted)))


@pytest.mark.skipif(not SECONDS, reason="a proof of teeth, for long searches")
async def test_a_power_cut_that_the_fault_limits_forbid_loses_what_was_acknowledged(
    tmp_path: Path, need: Callable[..., None]
) -> None:
    need(Ability.IMAGES)
    async with open_cluster(tmp_path) as cluster:
        load = await trio.to_thread.run_sync(Load, cluster.bootstrap)
        for _ in range(10):
            await trio.to_thread.run_sync(load.send)
        assert await trio.to_thread.run_sync(load.finish) == 0
        brokers = [node.name for node in cluster.brokers]
        assert await cluster.fault_limits.reason_not_to_damage(cluster.brokers) is not None
        await cluster.cut_power(*brokers)
        await cluster.start(*brokers)
        await cluster.wait_healthy()
        found = await trio.to_thread.run_sync(load.read)
        assert sum(map(len, found.values())) < load.sent
