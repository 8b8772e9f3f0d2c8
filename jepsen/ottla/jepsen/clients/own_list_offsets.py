"""The list-offsets workload, performed with Ottla's own client. The producer and the ListOffsets
requests share one view of the cluster."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import trio

from ottla.client.admin import Admin, open_admin
from ottla.client.fetch.offset_lookup import find_offsets
from ottla.client.network.background import open_background
from ottla.client.network.bootstrap import addresses_of
from ottla.client.network.cluster import Cluster, open_cluster
from ottla.client.producer import Producer
from ottla.jepsen.clients.completions import DEADLINE_S, ok
from ottla.jepsen.clients.own import OwnClient
from ottla.jepsen.clients.own_sending import REQUEST_TIMEOUT_MS, producer_config, send_one
from ottla.jepsen.clients.renewable import Renewable
from ottla.jepsen.clients.topics import TopicMaker, create_topic
from ottla.jepsen.workloads.keys import partition_of
from ottla.jepsen.workloads.load import Completion, LoadPlan, Note, Op
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ProducerConfig
from ottla.wire.offset_timestamps import LATEST


@asynccontextmanager
async def open_producer_and_view(
    bootstrap: str, config: ProducerConfig
) -> AsyncIterator[tuple[Producer, Cluster]]:
    """Open a producer, and yield it with its view of the cluster.

    This view contains every leader epoch that the producer has received, and each ListOffsets
    request carries the newest epoch. A leader that was deposed before an acknowledgement therefore
    refuses the request.
    """
    async with (
        open_cluster(
            addresses_of(bootstrap),
            client_id=config.client_id,
            request_timeout_s=REQUEST_TIMEOUT_MS / 1_000,
        ) as cluster,
        open_background() as nursery,
    ):
        producer = Producer(cluster, config, nursery)
        nursery.start_soon(producer._run)
        yield producer, cluster


class OwnListOffsetsClient(OwnClient):
    """Load client for one thread of the list-offsets workload, with Ottla's own client."""

    def __init__(
        self, nursery: trio.Nursery, bootstrap: str, thread: int, note: Note, plan: LoadPlan
    ) -> None:
        super().__init__(nursery, bootstrap, thread, note)
        config = producer_config(idempotent=plan.idempotent)
        self._both: Renewable[tuple[Producer, Cluster]] = Renewable(
            nursery, partial(open_producer_and_view, bootstrap, config)
        )
        self._admin: Renewable[Admin] = Renewable(
            nursery, partial(open_admin, bootstrap, timeout_s=DEADLINE_S)
        )
        self._topics = TopicMaker(plan)
        self.parts = [self._both, self._admin]

    @property
    def operations(self) -> Mapping[str, Callable[[Op], Awaitable[Completion]]]:
        """Functions that perform the workload's operations, by operation name."""
        return {
            "send": self._send,
            "end-offset": self._end_offset,
            "create-topic": self._create_topic,
        }

    async def _send(self, op: Op) -> Completion:
        producer, _ = await self._both.get()
        return await send_one(producer, op)

    async def _end_offset(self, op: Op) -> Completion:
        _, cluster = await self._both.get()
        key = op.value[0]
        at = TopicPartition(*partition_of(key))
        found = (await find_offsets(cluster, {at: LATEST}, timeout_s=DEADLINE_S))[at]
        return ok([key, int(found.offset)], {"leader_epoch": int(found.leader_epoch)})

    async def _create_topic(self, op: Op) -> Completion:
        return await create_topic(await self._admin.get(), self._topics, op)
