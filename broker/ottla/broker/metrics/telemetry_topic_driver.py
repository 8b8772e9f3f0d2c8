"""Writes what clients pushed to the topic `__client_metrics`, as any producer would.

It is a client of its own cluster, so the topic's leaders may be anywhere, and what is written there
counts as any other traffic does.  Nothing is opened, and of the client nothing imported, before
there is something to write.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, NoReturn

import trio

from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.limits import MIB
from ottla.telemetry.topic_exporter_driver import TOPIC, TopicRecord

if TYPE_CHECKING:
    from ottla.client.producer import Producer
    from ottla.model.settings.client import ProducerConfig

CLIENT_ID = "ottla-telemetry"

MAY_NOT = (
    "the user of the brokers may not create it or write to it; allow it both: ottla acl create "
    f"--allow USER --topic {TOPIC} --operation create,write"
)
"""Why a cluster with ACLs refuses, and the cure: ClusterAction, which brokers have, is for other
work, and this is a topic as any."""


@cache
def producer_config() -> "ProducerConfig":
    """Return the producer's settings.

    The sender keeps what was not delivered and sends it again: this need not try for long.
    """
    from ottla.model.settings.client import ProducerConfig

    return ProducerConfig(
        client_id=CLIENT_ID,
        compression_type="zstd",
        buffer_bytes_max=8 * MIB,
        request_timeout_ms=10_000,
        delivery_timeout_ms=30_000,
        block_ms_max=30_000,
        # Its reports would be what it writes.
        enable_metrics_push=False,
    )


class TelemetryTopic:
    """The topic's producer; owns it.

    `address` returns where this broker is reached, and None while the cluster does not know it.
    """

    def __init__(self, address: Callable[[], tuple[str, int] | None]) -> None:
        self._address = address
        self._is_wanted = trio.Event()
        self._is_open = trio.Event()
        self._producer: Producer | None = None
        self._is_made = False
        self._at = ("", 0)

    async def run(self) -> NoReturn:
        """Keep the producer, from the first record on, until cancelled."""
        await self._is_wanted.wait()
        from ottla.client.producer import open_producer

        async with open_producer([self._at], producer_config()) as self._producer:
            self._is_open.set()
            await trio.sleep_forever()
            raise AssertionError

    async def send(self, records: Sequence[TopicRecord]) -> None:
        """Write records, those of a key in order; RefusedError when one of them was not taken."""
        address = self._address()
        if address is None:
            raise RefusedError(ErrorCode.NETWORK_EXCEPTION, "this broker is not registered yet")
        self._at = address
        self._is_wanted.set()
        await self._is_open.wait()
        assert self._producer is not None
        await self._make_topic()
        try:
            deliveries = [
                await self._producer.send(
                    TOPIC, record.value, key=record.key, timestamp_ms=record.timestamp_ms
                )
                for record in records
            ]
            for delivery in deliveries:
                await delivery
        except RefusedError as error:
            # Somebody may have deleted it.
            self._is_made = False
            if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise RefusedError(error.code, MAY_NOT) from error
            raise

    async def _make_topic(self) -> None:
        """Make the topic if there is none, whether or not clients may have topics made."""
        if self._is_made:
            return
        from ottla.client.admin import open_admin
        from ottla.client.network.connection import ConnectionLostError

        try:
            async with open_admin([self._at], client_id=CLIENT_ID) as admin:
                await admin.create_topic(TOPIC)
        except (ConnectionLostError, ProtocolError, RefusedError) as error:
            code = getattr(error, "code", None)
            if code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                # Whatever the reason (too few brokers are up): it may pass.
                why = MAY_NOT if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED else str(error)
                raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why) from error
        self._is_made = True
