"""Metrics of transactions that leaders of data partitions report."""

from typing import Any

import pytest

from ottla.broker.metrics.transactional_partitions import (
    LATE_AFTER_MS,
    transactional_partition_families,
)
from ottla.model.ids import ProducerId
from ottla.node.network.request_times import BOUNDS_NS, NS_PER_MS
from ottla.storage.producers.verification import UNGUARDED
from ottla.telemetry.metrics.instruments import Histogram, Summary

World = Any  # the class of the `world` fixture, in conftest.py

FIGURES = {
    "transactions.questions": 3.0,
    "transactions.questions.failed": 1.0,
}
TIMEOUT_MS = 900_000


def shown(world: World, wall_ms: int, *durations_ms: int) -> dict[str, float | Summary]:
    durations = Histogram(BOUNDS_NS)
    for duration_ms in durations_ms:
        durations.observe(duration_ms * NS_PER_MS)
    families = transactional_partition_families(
        world.table,
        FIGURES,
        durations,
        now_ms=0,
        wall_ms=wall_ms,
        timeout_ms_max=TIMEOUT_MS,
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


async def test_a_producer_counts_once_for_each_partition(world: World) -> None:
    partitions = [await world.add("t"), await world.add("t", index=1)]
    for partition in partitions:
        for producer_id in (7, 8):
            partition.append(
                world.batch(
                    b"v", producer_id=ProducerId(producer_id), producer_epoch=0, base_sequence=0
                ),
                acks=1,
                now_ms=world.clock.wall_ms(),
                mono_ms=world.clock.now_ms,
            )
    await world.add("t", index=2, is_log_there=False)
    assert shown(world, 0)["kafka_server_replicamanager_produceridcount"] == 4


async def test_verifications_are_shown_by_their_quantiles(world: World) -> None:
    name = "kafka_server_addpartitionstotxnmanager_verificationtimems"
    found = shown(world, 0, *[2] * 98, 50, 50)[name]
    assert isinstance(found, Summary)
    assert (found.value_count, found.value_sum) == (100, 296)
    quantiles = dict(found.quantiles)
    assert quantiles[0.5] == pytest.approx(2, rel=0.25)
    assert quantiles[0.99] == pytest.approx(50, rel=0.25)
