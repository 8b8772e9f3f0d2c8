"""Replicas that lost records: reported until they are in sync again or removed."""

from dataclasses import replace
from typing import Any

import pytest

from ottla.metadata.image import Topic
from ottla.metadata.persistent_map import PersistentMap
from ottla.model.ids import NO_NODE, Epoch, NodeId, Offset, TopicIdPartition, TopicPartition
from ottla.storage.losses.log_losses import LogLoss, LossKind
from tests.broker.replicas.manager_bench import FIRST, ManagerBench, World, image_with, publish


def lost_log(managed: ManagerBench) -> LogLoss:
    loss = LogLoss(
        topic_id=FIRST,
        partition=TopicPartition("t", 0),
        directory=managed.logs.directories[0].path,
        kind=LossKind.MISSING,
        promised_end_offset=Offset(3),
        found_end_offset=Offset(0),
        reason="its log is gone",
    )
    managed.logs.known_losses.by_partition = {loss.key: loss}
    return loss


@pytest.mark.parametrize(
    ("changes", "is_forgotten"),
    [
        ({"isr": (NodeId(2),)}, False),
        ({"leader": NO_NODE}, False),
        ({}, True),
        ({"replicas": (NodeId(2), NodeId(3)), "isr": (NodeId(2),)}, True),
    ],
    ids=["out of sync", "without a leader", "in sync again", "not here"],
)
async def test_a_loss_is_known_until_the_replica_is_in_sync_again_or_not_here(
    world: World, managed: ManagerBench, changes: dict[str, Any], is_forgotten: bool
) -> None:
    lost_log(managed)
    changes = {"leader": NodeId(2), **changes}
    await publish(managed, image_with(world, ("t", FIRST), **changes))
    assert (not managed.logs.losses) is is_forgotten


async def test_a_hole_is_known_until_its_replica_in_sync_dropped_what_is_behind_it(
    world: World, managed: ManagerBench
) -> None:
    lost_log(managed)
    changes: dict[str, Any] = {"leader": NodeId(2)}
    await publish(managed, image_with(world, ("t", FIRST), isr=(NodeId(2),), **changes))
    log = managed.manager.table.by_id[FIRST][0].log
    assert log is not None
    log.state.hole_offset = Offset(0)
    await publish(managed, image_with(world, ("t", FIRST), **changes))
    assert managed.logs.losses
    log.state.hole_offset = None
    await publish(managed, image_with(world, ("t", FIRST), **changes))
    assert not managed.logs.losses


async def test_a_loss_is_forgotten_with_its_topic(world: World, managed: ManagerBench) -> None:
    lost_log(managed)
    await publish(managed, image_with(world))
    assert not managed.logs.losses


async def test_a_placement_counts_only_in_sync_or_eligible_and_not_as_created(
    world: World, managed: ManagerBench
) -> None:
    key = TopicIdPartition(FIRST, 0)
    here: PersistentMap[TopicIdPartition, None] = PersistentMap({key: None})
    for elr, changes, is_counted_on in (
        ((), {"partition_epoch": 3}, True),
        ((), {"partition_epoch": 0, "leader_epoch": Epoch(0)}, False),
        ((), {"partition_epoch": 3, "isr": (NodeId(2),)}, False),
        ((NodeId(1),), {"partition_epoch": 3, "isr": (NodeId(2),)}, True),
    ):
        state = replace(world.state(**changes), elr=elr)
        image = replace(
            image_with(world),
            topics=PersistentMap({FIRST: Topic("t", FIRST, PersistentMap({0: state}))}),
            partitions_by_broker=PersistentMap({NodeId(1): here}),
        )
        (placement,) = await managed.manager.placements_of(image)
        assert placement.partition == TopicPartition("t", 0)
        assert placement.is_counted_on is is_counted_on
