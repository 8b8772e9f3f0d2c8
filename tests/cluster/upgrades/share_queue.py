"""A topic that share groups consume before a cluster returns to the last release, and after.

The last release has no share groups. It keeps their records and settings, and each share group
continues later with the records that it has not accepted.
"""

import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import pytest
import trio
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client import (
    ConfigKind,
    ConfigResource,
    ShareConsumer,
    ShareConsumerConfig,
    open_admin,
    open_share_consumer,
)
from ottla.client.network.login import LOGIN
from ottla.client.network.tls import TLS, TlsDialer
from ottla.model.errors import ErrorCode, RefusedError
from tests.cluster.conftest import Processes, security_of
from tests.cluster.transactional_writers import TIMEOUT_S
from tests.cluster.upgrades.java_clients import printed_lines

TOPIC, PARTITION_COUNT = "queue", 2
BY_OTTLA, BY_JAVA = "share-by-ottla", "share-by-java"
RECORD_COUNT = 60
QUIET_S = 1.0
ON, OFF = "share.version=1", "share.version=0"


class ShareQueue:
    """The topic, and the numbers that each share group has accepted."""

    def __init__(self, cluster: Processes, admin: AdminClient, java: Sequence[str]) -> None:
        self.accepted: dict[str, list[int]] = {BY_OTTLA: []}
        if java:
            self.accepted[BY_JAVA] = []
        self.duration_s = 0.0
        """Time that the steps of share groups took, in seconds."""
        self._cluster = cluster
        self._admin = admin
        self._java = java
        self._numbers = itertools.count()

    def consume_half_and_turn_off(self) -> None:
        """Turn share groups on, accept some records, and turn them off while a member consumes."""
        cluster, began_at = self._cluster, time.monotonic()
        raised = cluster.ottla("cluster", "features", "upgrade", ON, "--yes")
        assert "no broker can return to release 0.2.0" in raised.stderr, raised
        topic = NewTopic(TOPIC, PARTITION_COUNT, 3)
        self._admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)
        self._run(self._start_at_the_earliest)
        self._send()
        self._accept_by_java(RECORD_COUNT // 3)
        unready = cluster.ottla("cluster", "upgrade", "status").stdout
        assert f"cluster features downgrade {OFF}'" in unready, unready
        self._run(self._accept_until_turned_off)
        self.duration_s += time.monotonic() - began_at

    def turn_on_and_consume_rest(self) -> None:
        """Turn share groups on again, and accept all other records and further ones."""
        began_at = time.monotonic()
        self._cluster.ottla("cluster", "features", "upgrade", ON, "--yes")
        self._send()
        self._accept_by_java(2 * RECORD_COUNT)
        self._run(self._accept_all)
        for group, accepted in self.accepted.items():
            assert sorted(accepted) == list(range(2 * RECORD_COUNT)), group
        self.duration_s += time.monotonic() - began_at

    # ---- records

    def _send(self) -> None:
        producer = Producer({**self._cluster.client, "acks": "all"})
        for number in itertools.islice(self._numbers, RECORD_COUNT):
            producer.produce(TOPIC, b"%d" % number, partition=number % PARTITION_COUNT)
        assert producer.flush(TIMEOUT_S) == 0

    # ---- Java

    def _accept_by_java(self, until_count: int) -> None:
        """Accept records until the group has accepted a number of them."""
        if not self._java:
            return
        accepted = self.accepted[BY_JAVA]
        missing = until_count - len(accepted)
        command = [*self._java, "share", self._cluster.bootstrap, BY_JAVA, str(missing), TOPIC]
        with printed_lines(command, threading.Event()) as lines:
            accepted += [int(value) for _, value in itertools.islice(lines, missing)]

    # ---- our client

    def _run(self, body: Callable[[], Awaitable[None]]) -> None:
        security = security_of(self._cluster.client)
        if security is not None:
            LOGIN.set(security.login())
            tls = security.tls()
            TLS.set(None if tls is None else TlsDialer(tls))
        trio.run(body)

    async def _start_at_the_earliest(self) -> None:
        """Give the groups a setting that the last release does not know."""
        async with open_admin(self._cluster.bootstrap) as admin:
            for group in self.accepted:
                resource = ConfigResource(ConfigKind.GROUP, group)
                await admin.alter_configs(resource, {"share.auto.offset.reset": "earliest"})

    async def _accept_until_turned_off(self) -> None:
        config = ShareConsumerConfig(group_id=BY_OTTLA)
        async with open_share_consumer(self._cluster.bootstrap, config) as consumer:
            consumer.subscribe([TOPIC])
            await self._accept(consumer, RECORD_COUNT // 3)
            lower = ("cluster", "features", "downgrade", OFF, "--yes")
            lowered = await trio.to_thread.run_sync(partial(self._cluster.ottla, *lower))
            assert "share groups stop" in lowered.stderr, lowered
            assert lowered.stdout == "share.version is 0\n", lowered
            with pytest.raises(RefusedError, match="no share groups") as refused:
                await self._accept(consumer, RECORD_COUNT + 1)
            assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION

    async def _accept_all(self) -> None:
        config = ShareConsumerConfig(group_id=BY_OTTLA)
        async with open_share_consumer(self._cluster.bootstrap, config) as consumer:
            consumer.subscribe([TOPIC])
            await self._accept(consumer, 2 * RECORD_COUNT)
            assert await consumer.poll(QUIET_S) == [], "a record was delivered twice"

    async def _accept(self, consumer: ShareConsumer, until_count: int) -> None:
        """Accept records one by one until a number of acknowledgements is confirmed."""
        accepted = self.accepted[BY_OTTLA]
        with trio.fail_after(TIMEOUT_S):
            while len(accepted) < until_count:
                for record in await consumer.poll(record_count_max=1):
                    await record.accept()
                    accepted.append(int(record.value or b""))
