"""Writes the metric pushes of clients to the topic `__client_metrics`, as an ordinary producer.

The writer is a client of the broker's own cluster. Therefore any broker may lead the topic's
partitions, and quotas and metrics include the writer's traffic. Connections are opened and client
code is imported only for the first record.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, NoReturn

import trio

from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.limits import MIB
from ottla.telemetry.exporters.topic_exporter_driver import TOPIC, TopicRecord

if TYPE_CHECKING:
    from ottla.client.producer import Producer
    from ottla.model.settings.client import ProducerConfig

CLIENT_ID = "ottla-telemetry"

MAY_NOT = (
    "the user of the brokers may not create it or write to it; allow it both: ottla acl create "
    f"--allow USER --topic {TOPIC} --operation create,write"
)
"""Error message if ACLs forbid writing to the topic `__client_metrics`, with advice for the
operator. The permission ClusterAction of brokers does not allow writes to ordinary topics such as
this one."""


@cache
def producer_config() -> "ProducerConfig":
    """Return the settings of the producer that writes to `__client_metrics`.

    The producer retries for a shorter time than by default, because its sender stores undelivered
    records and sends them again.
    """
    from ottla.model.settings.client import ProducerConfig

    return ProducerConfig(
        client_id=CLIENT_ID,
        compression_type="zstd",
        buffer_bytes_max=8 * MIB,
        request_timeout_ms=10_000,
        delivery_timeout_ms=30_000,
        block_ms_max=30_000,
        # Its own metrics would be written to the same topic.
        enable_metrics_push=False,
    )


class TelemetryTopic:
    """Producer that writes clients' metric pushes to the topic `__client_metrics`.

    `address` returns the address of this broker, or None until the cluster knows it.
    """

    def __init__(self, address: Callable[[], tuple[str, int] | None]) -> None:
        self._address = address
        self._is_wanted = trio.Event()
        self._is_open = trio.Event()
        self._producer: Producer | None = None
        self._is_made = False
        self._at = ("", 0)

    async def run(self) -> NoReturn:
        """Open the producer of `__client_metrics` when the first record is sent, and keep it open
        until cancelled."""
        await self._is_wanted.wait()
        from ottla.client.producer import open_producer

        async with open_producer([self._at], producer_config()) as self._producer:
            self._is_open.set()
            await trio.sleep_forever()
            raise AssertionError

    async def send(self, records: Sequence[TopicRecord]) -> None:
        """Write records to `__client_metrics`, in order for each key. Raises RefusedError if any
        record was not accepted."""
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
            # The topic may have been deleted.
            self._is_made = False
            if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise RefusedError(error.code, MAY_NOT) from error
            raise

    async def _make_topic(self) -> None:
        """Create `__client_metrics` if it does not exist, even if topics are not created
        automatically for clients."""
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
                # Any other reason, such as too few live brokers, may be temporary.
                why = MAY_NOT if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED else str(error)
                raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why) from error
        self._is_made = True
