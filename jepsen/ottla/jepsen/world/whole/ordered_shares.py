"""Test subject of the simulator: a share group with order by key, delays, back-off and priorities,
while faults happen.

Members work longer than in the subject `shares`, so that records wait for each other and priorities
matter.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from ottla.client.admin import open_admin
from ottla.client.admin_parts.admin_configs import ConfigResource
from ottla.client.share.share_records import ShareRecord
from ottla.jepsen.checkers.share_order import order_of
from ottla.jepsen.history import Json
from ottla.jepsen.world.whole.share_workload import GROUP_SETTINGS, ShareWorkload
from ottla.jepsen.world.whole.shares import SharesOfCluster
from ottla.jepsen.world.whole.workload import WorkloadPlan, machine_time_ms
from ottla.model.settings.resources import ConfigKind

BACKOFF_MS = 1_500
"""Shortest back-off in ms after a failed delivery attempt of a record."""


class OrderedShareWorkload(ShareWorkload):
    """The clients of a run with a share group that orders its deliveries."""

    work_s_max = 1.0
    group_settings: ClassVar[dict[str, str]] = {
        **GROUP_SETTINGS,
        "ottla.share.key.concurrency": "1",
        "ottla.share.priority.enable": "true",
        "ottla.share.backoff.min.ms": str(BACKOFF_MS),
        "ottla.share.backoff.max.ms": str(3 * BACKOFF_MS),
    }

    async def create_topics(self, *, replication_factor: int) -> None:
        """Configure the share group, then create the permanent topics. In this order, a leader of a
        topic has the settings of the group, however late it receives metadata."""
        async with open_admin(self._cluster.bootstrap, timeout_s=30.0) as admin:
            group = ConfigResource(ConfigKind.GROUP, self.group)
            await admin.alter_configs(group, self.group_settings)
        await super().create_topics(replication_factor=replication_factor)

    def _topic_configs(self) -> dict[str, str]:
        return {"ottla.share.delay.ms": "0"}

    def _record_key(self, value: bytes) -> bytes | None:
        key = order_of(value.decode()).key
        return None if key is None else key.encode()

    def _record_headers(self, value: bytes) -> Sequence[tuple[str, bytes]]:
        order = order_of(value.decode())
        headers = [("ottla.priority", order.priority.value.encode())]
        if order.delay_ms:
            headers.append(("ottla.delay.ms", b"%d" % order.delay_ms))
        return headers

    def _timing(self, record: ShareRecord) -> list[Json]:
        delay_ms = order_of((record.value or b"").decode()).delay_ms
        if not delay_ms:
            return []
        self.counts["a delayed record is delivered"] += 1
        return [record.timestamp_ms + delay_ms - machine_time_ms()]


class OrderedSharesOfCluster(SharesOfCluster):
    """Search engine that simulates whole nodes, and members of a share group with ordered
    deliveries."""

    subject = "ordered-shares"
    topics = ("jobs",)
    workload = OrderedShareWorkload
    checkers = ("log", "shares", "share-order")
    facts: ClassVar[dict[str, Json]] = {**SharesOfCluster.facts, "share_backoff_ms": BACKOFF_MS}
    required: tuple[str, ...] = (*SharesOfCluster.required, "a delayed record is delivered")

    def plan_of(self, plan: WorkloadPlan) -> WorkloadPlan:
        """Return the clients' work plan, changed to one partition. Many records then wait for each
        other."""
        return replace(super().plan_of(plan), partition_count=1)
