"""Runs tiered storage on a broker: one `PartitionTier` for each replica of a tiered topic.

This metadata publisher runs after the replica manager. The replicas are compared with the running
tasks after each change of the metadata, and at an interval. A replica that begins to lead or to
follow gets a new task. The copies of a deleted topic are deleted.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial

import trio

from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.tier.deleted_topics_driver import DeletedTopics
from ottla.broker.tier.partition_tier_driver import DeletedPartition, PartitionTier, TierPorts
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.background_driver import keep_running
from ottla.model.ids import TopicIdPartition
from ottla.node.part_registry import PartRegistry

logger = logging.getLogger("ottla.broker.tier")

REVIEW_S = 1.0
"""Interval in seconds between two comparisons of the replicas with the running tasks, during SOON_S
after a change of the metadata. A newly opened log is noticed within this time."""

QUIET_REVIEW_S = 15.0
"""Interval in seconds between two comparisons of the replicas with the running tasks while no
replica changes. A comparison examines every replica of the broker."""

SOON_S = 60.0
"""Seconds after a change of the metadata within which logs are usually opened."""


class RemoteLogManager:
    """Tasks of all tiered partitions of this broker."""

    def __init__(
        self,
        table: PartitionTable,
        ports: TierPorts,
        *,
        on_image: Callable[[MetadataImage], None] = lambda image: None,
    ) -> None:
        """Create the manager without tasks. `on_image` is called with each metadata image before
        the replicas are compared with the image."""
        self._table = table
        self._on_image = on_image
        self._ports = ports
        self._tiers: dict[TopicIdPartition, PartitionTier] = {}
        self._scopes: dict[TopicIdPartition, trio.CancelScope] = {}
        self._changed = trio.Event()

    @property
    def name(self) -> str:
        """Name of this metadata publisher (a component that applies each new metadata image), for
        fault reports."""
        return "remote log manager"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Record that replicas may have changed, so that the running tasks are compared with the
        replicas."""
        self._on_image(image)
        self._changed.set()

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background tasks, metrics and status values of tiered storage."""
        parts.task("remote log manager", self.run)
        parts.families(self._ports.figures.families)
        parts.figures(self._ports.figures.metrics)
        parts.problems(self.problems)

    def problems(self) -> Iterator[str]:
        """Yield a problem description for each lasting failure of tiered storage."""
        return self._ports.figures.alarms.problems(self._ports.clock.monotonic_ms())

    def copy_soon(self) -> None:
        """Begin the next round of copies and deletions of all partitions now, because a disk has
        too little free space."""
        for tier in self._tiers.values():
            tier.wake.unpark_all()

    async def run(self) -> None:
        """Run the tasks of all tiered partitions until cancelled."""
        changed_at = trio.current_time()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(
                    keep_running,
                    "deletion of the copies of deleted topics",
                    DeletedTopics(self._ports).run,
                    self._ports.errors,
                )
                while True:
                    self._review(nursery)
                    is_soon = trio.current_time() - changed_at < SOON_S
                    with trio.move_on_after(REVIEW_S if is_soon else QUIET_REVIEW_S):
                        await self._changed.wait()
                        changed_at = trio.current_time()
                    self._changed = trio.Event()
        finally:
            self._tiers.clear()
            self._scopes.clear()

    def _review(self, nursery: trio.Nursery) -> None:
        """Start and end tasks, so that each tiered replica has a task for its current role."""
        for key, tier in list(self._tiers.items()):
            if not tier.is_current():
                self._end(key, nursery)
        for replica in self._table:
            log = replica.log
            if log is not None and log.is_tiered and replica.key not in self._tiers:
                tier = PartitionTier(replica, log, self._ports)
                self._tiers[replica.key] = tier
                self._ports.topic.assign(replica.key)
                self._scopes[replica.key] = trio.CancelScope()
                nursery.start_soon(self._run_tier, tier, self._scopes[replica.key])

    async def _run_tier(self, tier: PartitionTier, scope: trio.CancelScope) -> None:
        with scope:
            await keep_running(f"tiered storage of {tier}", tier.run, self._ports.errors)

    def _end(self, key: TopicIdPartition, nursery: trio.Nursery) -> None:
        tier = self._tiers.pop(key)
        self._scopes.pop(key).cancel()
        self._ports.figures.forget(key)
        if not tier.partition.is_removed:
            if tier.is_leader and tier.is_disabled:
                self._delete_copies(tier, nursery)
            return  # its next role needs the metadata, too
        if key.topic_id in self._table.image.topics:
            self._ports.topic.unassign(key)  # the replica moved to another broker
            return
        self._delete_copies(tier, nursery)

    def _delete_copies(self, tier: PartitionTier, nursery: trio.Nursery) -> None:
        deletion = DeletedPartition(tier, self._ports)
        name = f"deletion of the copies of {tier}"
        nursery.start_soon(partial(keep_running, name, deletion.run, self._ports.errors))
