"""Share persister of a broker: finds the share coordinator of each share partition in the metadata
and calls it. Calls that failed for a transient reason are repeated after a pause, or at once when a
coordinator changes.

A call for a coordinator on this broker needs no connection and no task. Each other coordinator is
called over up to `LINKS_MAX` connections, each with one request in flight. While all connections
are busy, calls accumulate, and the next request contains them together. If `__share_group_state`
does not exist, the first call creates it.
"""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

import trio

from ottla.broker.cluster.peer_connection_driver import PeerConnection
from ottla.broker.coordinators.find_coordinator import SHARE, SHARE_FROM
from ottla.broker.coordinators.placement import partition_of
from ottla.broker.coordinators.share_persister import (
    SharePartitionKey,
    SharePersister,
    ShareState,
    ShareSummary,
    StateBatch,
)
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.share_state.persister_calls import (
    DELETE,
    INITIALIZE,
    READ,
    READ_SUMMARY,
    RETRIED,
    WRITE,
    CallKind,
    CallOrder,
    CallQueue,
    PersisterCall,
    answers_of,
    code_of,
    request_of,
)
from ottla.client.network.login import starter_of
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage, Topic
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.ids import NO_NODE, NodeId
from ottla.model.internal_topics import SHARE_STATE_TOPIC
from ottla.model.seams import Clock
from ottla.model.settings.broker import BrokerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.network.alarm_driver import Alarm
from ottla.node.network.loopback_driver import Loopback
from ottla.node.part_registry import PartRegistry
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse

LINKS_MAX = 4
"""Maximum number of connections to one share coordinator. A request names one group, and waits
until its writes are replicated. With fewer connections, groups wait for each other. With more
connections, more file descriptors are used."""

IDLE_S = 60.0
"""Seconds after which an unused connection to a share coordinator is closed."""

REQUEST_MARGIN_MS = 5_000
"""Milliseconds that a request may take in addition to the time for which the coordinator waits for
replicas. A frozen coordinator delays its calls by the sum of these two times."""

CALLS_MAX = 200_000
"""Maximum number of share persister calls without an answer. Further calls are refused."""


class SharePersisterDriver:
    """Implementation of `SharePersister` that calls all share coordinators of the cluster. It
    stores the calls in progress."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        local: Callable[[], SharePersister],
        table: PartitionTable,
        clock: Clock,
        errors: UnexpectedErrors,
        own: Loopback,
    ) -> None:
        """Create a persister that calls all share coordinators of the cluster.

        `local` returns the persister that writes to this broker's own share coordinator. `own` is
        the loopback to this broker, used to create the topic `__share_group_state`.
        """
        self._config = config
        self._local = local
        self._table = table
        self._clock = clock
        self._errors = errors
        self._own = own
        self._order = CallOrder()
        self._startable: deque[PersisterCall] = deque()
        self._is_starting = False
        self._retries: list[tuple[int, int, PersisterCall]] = []
        self._sequence = count()
        self._topic: Topic | None = None
        """The topic `__share_group_state` in the last metadata image, or None if the topic does not
        exist."""
        self._alarm = Alarm(clock, self._next_retry_ms, self._on_retries_due)
        self._senders: dict[NodeId, CoordinatorSender] = {}
        self._nursery: trio.Nursery | None = None
        self._start_soon: Callable[..., None]
        self._is_creating = False
        self.retry_count = 0
        """Number of share persister calls that were repeated after an error."""

    # ---- calls

    def initialize(
        self,
        key: SharePartitionKey,
        *,
        state_epoch: int,
        start_offset: int,
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        """Create the durable state of a share partition, or reset it in a higher state epoch."""
        fields = {"state_epoch": state_epoch, "start_offset": start_offset}
        self._call(INITIALIZE, key, fields, on_done)

    def read(
        self, key: SharePartitionKey, *, leader_epoch: int, on_done: Callable[[ShareState], None]
    ) -> None:
        """Read the durable state of a share partition, and fence its older leaders."""
        self._call(READ, key, {"leader_epoch": leader_epoch}, on_done)

    def write(
        self,
        key: SharePartitionKey,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        """Merge changed state batches into the durable state of a share partition."""
        fields = {
            "state_epoch": state_epoch,
            "leader_epoch": leader_epoch,
            "start_offset": start_offset,
            "delivery_complete_count": delivery_complete_count,
            "batches": batches,
        }
        self._call(WRITE, key, fields, on_done)

    def delete(self, key: SharePartitionKey, *, on_done: Callable[[ErrorCode], None]) -> None:
        """Delete the durable state of a share partition."""
        self._call(DELETE, key, {}, on_done)

    def read_summary(
        self, key: SharePartitionKey, *, leader_epoch: int, on_done: Callable[[ShareSummary], None]
    ) -> None:
        """Read the epochs and the start offset of a share partition's durable state."""
        self._call(READ_SUMMARY, key, {"leader_epoch": leader_epoch}, on_done)

    def _call(
        self,
        kind: CallKind,
        key: SharePartitionKey,
        fields: dict[str, Any],
        on_done: Callable[[Any], None],
    ) -> None:
        call = PersisterCall(kind, key, fields, on_done)
        if self._order.count >= CALLS_MAX:
            self._answer(call, call.failed(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif self._order.add(call):
            self._start(call)

    def _start(self, call: PersisterCall) -> None:
        """Send a share persister call to the share coordinator of its partition.

        If the result of a call starts another call, the new call is queued and sent after this
        method has returned. Long chains of calls therefore cannot exhaust the stack.
        """
        self._startable.append(call)
        if self._is_starting:
            return
        self._is_starting = True
        try:
            while self._startable:
                self._attempt(self._startable.popleft())
        finally:
            self._is_starting = False

    def _attempt(self, call: PersisterCall) -> None:
        if call.attempt_count == 0:
            call.begun_ms = self._clock.monotonic_ms()
        call.attempt_count += 1
        if call.key.topic_id not in self._table.image.topics:
            self._end(call, call.failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return
        node_id = self._coordinator_of(call.key)
        if node_id == self._config.node_id:
            call.ask(self._local(), partial(self._settle, call))
        elif node_id == NO_NODE:
            self._settle(call, call.failed(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            self._sender(node_id).add(call)

    def _coordinator_of(self, key: SharePartitionKey) -> NodeId:
        """Return the leader of the `__share_group_state` partition that stores a share partition's
        state, or NO_NODE if that partition has no leader."""
        topic = self._table.image.topic(SHARE_STATE_TOPIC)
        if topic is None or not topic.partitions:
            self._create_topic(key)
            return NO_NODE
        return NodeId(topic.partitions[partition_of(key.text, len(topic.partitions))].leader)

    def _settle(self, call: PersisterCall, answer: Any) -> None:
        """End a share persister call with its answer, or repeat the call after a pause if the error
        is transient."""
        if code_of(answer) in RETRIED:
            now_ms = self._clock.monotonic_ms()
            delay_ms = call.next_delay_ms(now_ms)
            if delay_ms is not None:
                self.retry_count += 1
                is_earliest = not self._retries or now_ms + delay_ms < self._retries[0][0]
                retry = (now_ms + delay_ms, next(self._sequence), call)
                heapq.heappush(self._retries, retry)
                if is_earliest:
                    self._alarm.rearm()
                return
        self._end(call, answer)

    def _end(self, call: PersisterCall, answer: Any) -> None:
        following = self._order.end(call)
        self._answer(call, answer)
        if following is not None:
            self._start(following)

    def _answer(self, call: PersisterCall, answer: Any) -> None:
        try:
            call.on_done(answer)
        except Exception as error:
            self._errors.note("share partition", call.key, error)

    # ---- metadata

    @property
    def name(self) -> str:
        """Name of this metadata publisher (a component that applies each new metadata image), for
        fault reports."""
        return "share persister"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Repeat the failed share persister calls at once if a partition of `__share_group_state`
        has a new leader. The calls do not wait for the response of the old leader, which may be
        frozen."""
        topic = image.topic(SHARE_STATE_TOPIC)
        if topic is not self._topic:
            self._topic = topic
            for sender in list(self._senders.values()):
                sender.leave_moved(self._coordinator_of)  # Queued calls become retries.
            retries, self._retries = sorted(self._retries), []
            for _, _, call in retries:
                # The new coordinator may still be loading: the next pause is short again.
                call.attempt_count = 1
                self._start(call)

    # ---- time

    def _next_retry_ms(self) -> int | None:
        return self._retries[0][0] if self._retries else None

    def _on_retries_due(self, now_ms: int) -> None:
        while self._retries and self._retries[0][0] <= now_ms:
            self._start(heapq.heappop(self._retries)[2])

    # ---- tasks

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background tasks and the metrics of this share persister."""
        parts.task("requests to share coordinators", self.run)
        parts.task("retries at share coordinators", self._alarm.run)
        parts.figures(self.metrics)

    def metrics(self) -> dict[str, float]:
        """Return the number of share persister calls without an answer, and the number of repeated
        calls, by metric name."""
        return {
            "share.persister.calls.waiting": self._order.count,
            "share.persister.calls.retried": self.retry_count,
        }

    async def run(self) -> None:
        """Send requests to share coordinators until cancelled."""
        async with trio.open_nursery() as nursery:
            self._start_soon = starter_of(nursery)
            self._nursery = nursery
            for sender in list(self._senders.values()):
                sender.start_links()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def start_soon(self, work: Callable[..., Any], *arguments: object) -> bool:
        """Start a background task of this persister. Returns False if the persister's tasks are not
        running."""
        if self._nursery is None:
            return False
        self._start_soon(work, *arguments)
        return True

    def _sender(self, node_id: NodeId) -> "CoordinatorSender":
        sender = self._senders.get(node_id)
        if sender is None:
            sender = self._senders[node_id] = CoordinatorSender(
                node_id,
                self._config,
                self._table,
                start_soon=self.start_soon,
                settle=self._settle,
                errors=self._errors,
            )
        return sender

    def _create_topic(self, key: SharePartitionKey) -> None:
        if not self._is_creating and self.start_soon(self._create, key):
            self._is_creating = True

    async def _create(self, key: SharePartitionKey) -> None:
        """Create the topic `__share_group_state` by a FindCoordinator request to this broker."""
        request = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key.text])
        try:
            await self._own.request(request, FindCoordinatorResponse, SHARE_FROM)
        except OttlaError:
            pass  # This broker is starting. The call is repeated.
        except Exception as error:
            self._errors.note("share coordinator", SHARE_STATE_TOPIC, error)
        finally:
            self._is_creating = False


class CoordinatorSender:
    """Sender of calls to one share coordinator: the queued share persister calls, and the
    connections that send them."""

    def __init__(
        self,
        node_id: NodeId,
        config: BrokerConfig,
        table: PartitionTable,
        *,
        start_soon: Callable[..., bool],
        settle: Callable[[PersisterCall, Any], None],
        errors: UnexpectedErrors,
    ) -> None:
        """Create a sender without calls. `settle` is called with each call and its answer. `settle`
        ends the call, or repeats it after a transient error."""
        self._node_id = node_id
        self._config = config
        self._table = table
        self._start_soon = start_soon
        self._settle = settle
        self._errors = errors
        self._queue = CallQueue()
        self._idle_links = trio.lowlevel.ParkingLot()
        self._link_count = 0
        self._in_flight: dict[trio.CancelScope, list[PersisterCall]] = {}
        """Calls of each request without a response, by the cancel scope of the wait for the
        response."""

    def add(self, call: PersisterCall) -> None:
        """Queue a share persister call. One of the connections to the coordinator will send it."""
        self._queue.add(call)
        self.start_links()

    def leave_moved(self, coordinator_of: Callable[[SharePartitionKey], NodeId]) -> None:
        """Fail the calls whose share partition has moved to another coordinator, so that they are
        sent to the new coordinator. A request is cancelled only if all of its calls have moved."""

        def is_moved(call: PersisterCall) -> bool:
            return coordinator_of(call.key) != self._node_id

        for scope, calls in self._in_flight.items():
            if all(map(is_moved, calls)):
                scope.cancel()
        for call in self._queue.take_all():
            if is_moved(call):
                self._settle(call, call.failed(ErrorCode.NOT_COORDINATOR))
            else:
                self._queue.add(call)

    def start_links(self) -> None:
        """Wake an idle connection to the coordinator, or open another connection if the limit
        allows it."""
        if not self._queue:
            return
        if self._idle_links:
            self._idle_links.unpark()
        elif self._link_count < LINKS_MAX and self._start_soon(self._serve):
            self._link_count += 1

    async def _serve(self) -> None:
        """Send calls to the share coordinator over one connection, until no call is added for
        IDLE_S."""
        link = PeerConnection(
            self._node_id, self._config, lambda: self._table.image, purpose="share-persister"
        )
        try:
            # Calls that were added in the same event-loop iteration are sent together.
            await trio.lowlevel.checkpoint()
            while await self._wait():
                if calls := self._queue.take():
                    await self._send(link, calls)
        finally:
            self._link_count -= 1
            await link.close()
            # A call may have arrived while the link was being closed.
            self.start_links()

    async def _wait(self) -> bool:
        """Wait until a call to the share coordinator is queued. Returns False if no call is added
        for IDLE_S."""
        with trio.move_on_after(IDLE_S):
            while not self._queue:
                await self._idle_links.park()
        return bool(self._queue)

    async def _send(self, link: PeerConnection, calls: list[PersisterCall]) -> None:
        answers = [(call, call.failed(ErrorCode.NETWORK_EXCEPTION)) for call in calls]
        scope = trio.CancelScope()
        self._in_flight[scope] = calls
        try:
            with scope:
                answers = answers_of(calls, await self._exchange(link, calls))
        except RefusedError as refusal:
            answers = [(call, call.failed(refusal.code)) for call in calls]
        except (OttlaError, OSError, trio.TooSlowError):
            await link.close()
        except Exception as error:
            self._errors.note("share coordinator", self._node_id, error)
            await link.close()
        finally:
            del self._in_flight[scope]
            # Also if this task is cancelled: each call gets exactly one answer.
            for call, answer in answers:
                self._settle(call, answer)
        if scope.cancelled_caught:
            await link.close()

    async def _exchange(self, link: PeerConnection, calls: list[PersisterCall]) -> Any:
        timeout_ms = self._config.share_state.write_timeout_ms + REQUEST_MARGIN_MS
        with trio.fail_after(timeout_ms / 1000):
            connection = await link.connected()
            request = request_of(calls)
            version = connection.version_of(request.API_KEY)
            return await connection.request(request, calls[0].kind.response, version)
