"""The offsets workload, performed with Ottla's own client: one request for each commit, without
retries."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import trio

from ottla.client.groups.coordinator import MOVED, Coordinator
from ottla.client.groups.group_offsets import Committed, commit_offsets, fetch_offsets
from ottla.client.network.bootstrap import addresses_of
from ottla.client.network.cluster import Cluster, open_cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.jepsen.clients.completions import DEADLINE_S, failed, ok, troubled
from ottla.jepsen.clients.own import OwnClient
from ottla.jepsen.clients.own_sending import REQUEST_TIMEOUT_MS
from ottla.jepsen.clients.renewable import Renewable
from ottla.jepsen.workloads.keys import partition_of
from ottla.jepsen.workloads.load import Completion, LoadPlan, Note, Op
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.ids import Offset, TopicPartition
from ottla.wire.messages.offset_commit_request import OffsetCommitRequest

COORDINATORS_MAX = 4
"""Maximum number of groups whose coordinator connection a thread of the workload keeps."""
REQUEST_TIMEOUT_S = REQUEST_TIMEOUT_MS / 1_000
NOT_WRITTEN = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    }
)
"""Error codes with which a coordinator refuses an offset commit before it writes anything."""


class Coordinators:
    """Connections to the coordinators of consumer groups, found through one view of the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._by_group: dict[str, Coordinator] = {}

    async def of(self, group: str) -> Coordinator:
        """Return the connection to a group's coordinator. Opens it if necessary. If more than
        COORDINATORS_MAX connections are then open, the oldest is closed."""
        found = self._by_group.pop(group, None)
        if found is None:
            found = Coordinator(self._cluster, group, client_id="jepsen")
            if len(self._by_group) >= COORDINATORS_MAX:
                oldest = self._by_group.pop(next(iter(self._by_group)))
                await oldest.forget()
        self._by_group[group] = found
        return found

    async def aclose(self) -> None:
        """Close all connections to coordinators."""
        for coordinator in self._by_group.values():
            await coordinator.forget()


@asynccontextmanager
async def open_coordinators(bootstrap: str) -> AsyncIterator[Coordinators]:
    """Open and yield `Coordinators`. A connection to the coordinator of a group is opened when it
    is first needed."""
    async with open_cluster(
        addresses_of(bootstrap), client_id="jepsen", request_timeout_s=REQUEST_TIMEOUT_S
    ) as cluster:
        coordinators = Coordinators(cluster)
        try:
            yield coordinators
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
                await coordinators.aclose()


class OwnOffsetsClient(OwnClient):
    """Load client for one thread of the offsets workload, with Ottla's own client."""

    def __init__(
        self, nursery: trio.Nursery, bootstrap: str, thread: int, note: Note, plan: LoadPlan
    ) -> None:
        super().__init__(nursery, bootstrap, thread, note)
        self._coordinators: Renewable[Coordinators] = Renewable(
            nursery, partial(open_coordinators, bootstrap)
        )
        self.parts = [self._coordinators]

    @property
    def operations(self) -> Mapping[str, Callable[[Op], Awaitable[Completion]]]:
        """Functions that perform the workload's operations, by operation name."""
        return {"commit": self._commit, "fetch": self._fetch}

    async def _commit(self, op: Op) -> Completion:
        group, key, offset = op.value
        coordinator = await (await self._coordinators.get()).of(group)
        is_found = False
        with trio.move_on_after(DEADLINE_S - REQUEST_TIMEOUT_S):
            try:
                await coordinator.until_it_answers(
                    lambda: coordinator.version_of(OffsetCommitRequest.API_KEY), DEADLINE_S
                )
                is_found = True
            except (RefusedError, ConnectionLostError, ProtocolError) as error:
                return failed(f"no coordinator: {error}")
        if not is_found:
            return failed("no coordinator was found")
        at = TopicPartition(*partition_of(key))
        node = coordinator.address
        try:
            await commit_offsets(
                coordinator, {at: Committed(Offset(offset))}, timeout_s=REQUEST_TIMEOUT_S
            )
        except RefusedError as error:
            if error.code in MOVED:
                await coordinator.forget()
            return troubled(op, error, certain=NOT_WRITTEN)
        return ok(None, {"node": node})

    async def _fetch(self, op: Op) -> Completion:
        group, key, _ = op.value
        coordinator = await (await self._coordinators.get()).of(group)
        at = TopicPartition(*partition_of(key))
        found = await coordinator.until_it_answers(
            lambda: fetch_offsets(coordinator, [at], timeout_s=REQUEST_TIMEOUT_S), DEADLINE_S
        )
        offset = int(found[at].offset) if at in found else None
        return ok([group, key, offset], {"node": coordinator.address})
