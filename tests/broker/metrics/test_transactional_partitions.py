"""What leaders of data show of transactions."""

from typing import Any

from ottla.broker.metrics.transactional_partitions import (
    LATE_AFTER_MS,
    transactional_partition_families,
)
from ottla.model.ids import ProducerId
from ottla.storage.verification import UNGUARDED

World = Any  # the class of the `world` fixture, in conftest.py

FIGURES = {
    "transactions.questions": 3.0,
    "transactions.questions.failed": 1.0,
    "transactions.questions.ms": 250.0,
}
TIMEOUT_MS = 900_000


def shown(world: World, wall_ms: int) -> dict[str, float]:
    families = transactional_partition_families(
        world.table, FIGURES, wall_ms=wall_ms, timeout_ms_max=TIMEOUT_MS
    )
    found = {}
    for family in families:
        if family is not None:
            ((_, value),) = family.samples  # type: ignore[misc]
            found[family.name] = value
    return found  # type: ignore[return-value]


async def test_a_partition_counts_whose_transaction_should_have_ended(world: World) -> None:
    partition = await world.add("t")
    await world.add("t", index=1)
    partition.append(
        world.batch(
            b"v",
            producer_id=ProducerId(7),
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        ),
        acks=1,
        now_ms=world.clock.wall_ms(),
        mono_ms=world.clock.now_ms,
        guard=UNGUARDED,
    )
    bound_ms = world.clock.wall_ms() + TIMEOUT_MS + LATE_AFTER_MS
    name = "kafka_server_replicamanager_partitionswithlatetransactionscount"
    assert shown(world, bound_ms)[name] == 0
    assert shown(world, bound_ms + 1)[name] == 1
    assert shown(world, bound_ms)["ottla_transaction_questions_seconds_total"] == 0.25
