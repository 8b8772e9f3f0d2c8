"""Conditions that some benchmarks of docs/performance.md require: quotas, and the size of a log.
Ottla's own admin client sets and reads them."""

import time
from collections.abc import Mapping

import trio

from ottla.bench.requests import BENCH_CLIENT_ID
from ottla.client.admin import open_admin
from ottla.client.admin_parts.admin_quotas import QuotaChange
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.quotas.quota_limits import CLIENT_ID, QuotaEntity
from ottla.model.settings.quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)

UNREACHED_QUOTAS = {PRODUCER_BYTE_RATE: 1e12, CONSUMER_BYTE_RATE: 1e12, REQUEST_PERCENTAGE: 1e6}
"""Client quotas that no load reaches, so that only the cost of quota accounting is measured."""
QUOTAS_SETTLE_S = 0.5
"""Maximum time in seconds until a quota change by the controller is in effect on the brokers."""


SMALL_REQUESTS = QuotaEntity(CLIENT_ID, False, BENCH_CLIENT_ID)
"""Client id that sends the small requests, as the entity of a quota."""


def set_quotas(
    bootstrap: str, limits: Mapping[str, float | None], entity: QuotaEntity = SMALL_REQUESTS
) -> None:
    """Set the quotas of an entity, by quota key. The value None removes a quota.

    Raises RefusedError if the cluster refuses the quotas.
    """

    async def alter() -> None:
        async with open_admin(bootstrap) as admin:
            for refusal in await admin.alter_quotas([QuotaChange((entity,), dict(limits))]):
                if refusal is not None:
                    raise refusal

    trio.run(alter)
    time.sleep(QUOTAS_SETTLE_S)


def log_bytes(bootstrap: str, broker: NodeId, topic: str) -> int:
    """Return the size in bytes of a broker's replica of a topic's first partition."""
    partition = TopicPartition(topic, 0)

    async def ask() -> int:
        async with open_admin(bootstrap) as admin:
            directories = await admin.describe_log_dirs(broker, [partition])
            return sum(
                replica.size_bytes for one in directories for replica in one.replicas.values()
            )

    return trio.run(ask)
