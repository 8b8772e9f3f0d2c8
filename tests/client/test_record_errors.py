"""One keyless record in a hundred to a compacted topic."""

import contextlib

from ottla.client.admin import open_admin
from ottla.client.produce.partition_queue import NotDeliveredError
from ottla.client.producer import open_producer
from ottla.client.testing import ClusterUnderTest
from ottla.model.settings.client import ProducerConfig

RECORD_COUNT, KEYLESS_AT = 100, 37
COMPACTED = {"cleanup.policy": "compact"}


async def test_our_client_fails_the_record_at_fault_alone_with_its_reason(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with open_admin(ottla_cluster.bootstrap) as admin:
        await admin.create_topic("t", configs=COMPACTED)
    failures: list[NotDeliveredError] = []
    async with open_producer(ottla_cluster.bootstrap, ProducerConfig(linger_ms=60_000)) as producer:
        deliveries = [
            await producer.send("t", b"v", key=None if number == KEYLESS_AT else b"k")
            for number in range(RECORD_COUNT)
        ]
        with contextlib.suppress(NotDeliveredError):
            await producer.flush()
        for delivery in deliveries:
            try:
                delivery.result()
            except NotDeliveredError as error:
                failures.append(error)
    assert len(failures) == RECORD_COUNT
    at_fault = [index for index, one in enumerate(failures) if not one.is_due_to_another]
    assert at_fault == [KEYLESS_AT]
    assert failures[KEYLESS_AT].message == (
        "t-0: Compacted topic cannot accept message without key in topic partition t-0"
    )
