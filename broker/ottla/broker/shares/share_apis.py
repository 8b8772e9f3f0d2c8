"""Registers the handlers of ShareFetch, ShareAcknowledge, DescribeShareDelivery and
DescribeShareRecords. Pure."""

from collections.abc import Callable

from ottla.broker.logs.cold_reads import ColdReads
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.shares.describe_delivery import DescribeShareDeliveryApi
from ottla.broker.shares.describe_records import DescribeShareRecordsApi
from ottla.broker.shares.led_share import DeliveryPorts
from ottla.broker.shares.share_acknowledge import ShareAcknowledgeApi
from ottla.broker.shares.share_delivery import ShareDelivery
from ottla.broker.shares.share_fetch import ShareFetchApi
from ottla.broker.tier.remote_fetches import RemoteFetches
from ottla.node.network.dispatch import Dispatcher
from ottla.wire.apis import (
    DESCRIBE_SHARE_DELIVERY,
    DESCRIBE_SHARE_RECORDS,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
)


class ShareApis:
    """Request handlers that deliver records to share groups, and their state."""

    def __init__(
        self,
        *,
        table: PartitionTable,
        ports: DeliveryPorts,
        session_count_max: int,
        is_enabled: Callable[[], bool],
        cold_reads: ColdReads,
        remote_fetches: RemoteFetches,
        fetch_bytes_max: int,
    ) -> None:
        self.delivery = ShareDelivery(
            table=table, ports=ports, session_count_max=session_count_max, is_enabled=is_enabled
        )
        self.fetch = ShareFetchApi(
            self.delivery,
            cold_reads=cold_reads,
            remote_fetches=remote_fetches,
            fetch_bytes_max=fetch_bytes_max,
        )
        self.acknowledge = ShareAcknowledgeApi(self.delivery)
        self.describe = DescribeShareDeliveryApi(self.delivery)
        self.records = DescribeShareRecordsApi(self.delivery)

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the handlers of share requests, and a listener that ends share sessions when
        their connection closes."""
        dispatcher.register(SHARE_FETCH, self.fetch.handle)
        dispatcher.register(SHARE_ACKNOWLEDGE, self.acknowledge.handle)
        dispatcher.register(DESCRIBE_SHARE_DELIVERY, self.describe.handle)
        dispatcher.register(DESCRIBE_SHARE_RECORDS, self.records.handle)
        dispatcher.on_closed.append(self.delivery.on_closed)
