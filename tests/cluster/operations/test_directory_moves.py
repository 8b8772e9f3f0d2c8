"""Replicas move between a broker's log directories under load, also through a kill of the
broker."""

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.admin import open_admin
from ottla.model.ids import NodeId, TopicPartition

pytestmark = pytest.mark.cluster

Load = Any  # the class of the `start_load` fixture, in conftest.py
NODE = NodeId(1)
TOPIC = "moved"
PARTITIONS = [TopicPartition(TOPIC, index) for index in range(3)]
RATE = 5_000
ROUNDS = 4


async def places(bootstrap: str) -> dict[TopicPartition, list[tuple[str, bool]]]:
    """Return the directories of each partition, and whether it is on its way there."""
    async with open_admin(bootstrap) as admin:
        found: dict[TopicPartition, list[tuple[str, bool]]] = {at: [] for at in PARTITIONS}
        for directory in await admin.describe_log_dirs(NODE, PARTITIONS):
            for at, replica in directory.replicas.items():
                found[at].append((directory.path, replica.is_future))
        return found


async def move(bootstrap: str, path: Path) -> None:
    async with open_admin(bootstrap) as admin:
        answers = await admin.move_replicas(NODE, {at: str(path) for at in PARTITIONS})
        assert answers == dict.fromkeys(PARTITIONS)


@pytest.mark.parametrize("is_killed", [False, True], ids=["in peace", "killed at any moment"])
def test_replicas_move_between_directories_under_load_and_no_record_is_lost(
    fresh: Any, tmp_path: Path, start_load: Callable[..., Load], is_killed: bool
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    directories = [tmp_path / "disk-one", tmp_path / "disk-two"]
    log_dirs = ",".join(map(str, directories))
    fresh.start("controller")
    fresh.start("broker", log_dirs=log_dirs)
    admin = AdminClient({"bootstrap.servers": fresh.bootstrap})
    topic = NewTopic(TOPIC, len(PARTITIONS), config={"file.delete.delay.ms": "100"})
    for future in admin.create_topics([topic]).values():
        future.result(timeout=60)
    load = start_load(fresh, TOPIC, rate=RATE)

    def all_lie_in(path: Path) -> bool:
        return trio.run(places, fresh.bootstrap) == {at: [(str(path), False)] for at in PARTITIONS}

    for number in range(ROUNDS):
        target = directories[number % 2]
        load.mark(f"to {target.name}")
        trio.run(move, fresh.bootstrap, target)
        if is_killed:
            # The moment is the point of this test: a real process dies at a random one.
            time.sleep(chance.uniform(0, 0.5))
            fresh.kill("broker")
            fresh.start("broker", log_dirs=log_dirs)
            trio.run(move, fresh.bootstrap, target)
        fresh.wait_for(partial(all_lie_in, target), f"every replica in {target.name}")
    fresh.wait_healthy()
    assert load.stop().is_clean
    kept, left = directories[(ROUNDS - 1) % 2], directories[ROUNDS % 2]
    assert len(list(kept.glob(f"{TOPIC}-[0-9]"))) == len(PARTITIONS)
    fresh.wait_for(lambda: not list(left.glob(f"{TOPIC}-[0-9]*")) or None, "old files to go")
