"""Connection over which a share consumer fetches records from one broker and sends acknowledgements
to it.

One request is in flight at a time, because the share session numbers its requests. A fetch contains
the waiting acknowledgements. If there is nothing to fetch, the acknowledgements are sent in a
separate request, after a short delay in which further acknowledgements may be added. Renewals of
locks are always sent in separate requests, as Kafka requires.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

import trio

from ottla.client.fetch.record_decoder import RecordDecoder
from ottla.client.network.background import now_ms
from ottla.client.network.broker_link import BrokerLink, Loss
from ottla.client.network.cluster import Cluster, KnownLeader
from ottla.client.network.connection import ConnectionLostError
from ottla.client.network.pipeline import Pipeline
from ottla.client.share.acknowledgement_ranges import AcknowledgeType
from ottla.client.share.share_acknowledgements import RecordsInHand
from ottla.client.share.share_buffer import BufferedRecords
from ottla.client.share.share_fetched import LockedOffsets, ShareFetched
from ottla.client.share.share_records import AcquiredRecords, PendingAcknowledgement
from ottla.client.share.share_session import (
    LOST_SESSION,
    NO_SHARE_GROUPS,
    Acknowledged,
    ShareSessionHandler,
)
from ottla.client.telemetry.share_metrics import ShareMeasures
from ottla.model.errors import CorruptDataError, ErrorCode, OttlaError, RefusedError, row_of
from ottla.model.ids import Epoch, NodeId, TopicIdPartition, TopicPartition
from ottla.model.settings.share_client import ShareConsumerConfig
from ottla.wire.apis import SHARE_ACKNOWLEDGE
from ottla.wire.messages.share_acknowledge_response import ShareAcknowledgeResponse
from ottla.wire.messages.share_fetch_request import ShareFetchRequest
from ottla.wire.messages.share_fetch_response import PartitionData, ShareFetchResponse

LOG = logging.getLogger("ottla.client")

PATIENCE_MS = 10_000
"""Time in ms that the client waits for the response to a fetch, in addition to
`fetch.max.wait.ms`."""
LINGER_MS = 20
"""Delay, in ms, before acknowledgements are sent in a separate request. It applies if no task
awaits the acknowledgements and no fetch can contain them. With a smaller value, there are more
requests. With a larger value, more records are delivered twice after a crash."""
REPORT_INTERVAL_MS = 10_000
"""Minimum interval, in ms, between two log messages about failed acknowledgements. The loss of one
connection may fail thousands of acknowledgements at once."""
ACQUIRE_MODES = {"batch_optimized": 0, "record_limit": 1}
"""Kafka's numbers for the values of `share.acquire.mode` (KIP-1206)."""
RENEWALS_FROM = 2
"""First version of ShareAcknowledge that can renew locks (KIP-1222)."""
MOVED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""Error codes which mean that the broker does not lead a requested partition."""

Results = dict[TopicIdPartition, tuple[int, str | None]]


class ShareLink(BrokerLink):
    """Task that fetches records from one broker and sends acknowledgements to it, over a connection
    of its own."""

    def __init__(
        self,
        node: NodeId,
        *,
        cluster: Cluster,
        config: ShareConsumerConfig,
        member_id: str,
        decoder: RecordDecoder,
        measures: ShareMeasures,
        wanted: Callable[[NodeId], Mapping[TopicIdPartition, TopicPartition]],
        budget: Callable[["ShareLink"], int],
        on_fetched: Callable[[BufferedRecords], None],
        on_stale: Callable[[str], None],
        on_moved: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        super().__init__(node, cluster, config)
        self.hand = RecordsInHand()
        """Records that this broker has locked for this consumer, and their acknowledgements."""
        self.requested_count = 0
        """Maximum number of records that the fetch in flight may return."""
        self.is_renewing = False
        """True if the consumer renews locks automatically, without a request of the application."""
        self._config = config
        self._decoder = decoder
        self._measures = measures
        self._wanted = wanted
        self._budget = budget
        """Function that returns the number of records to fetch now."""
        self._on_fetched = on_fetched
        self._on_stale = on_stale
        self._on_moved = on_moved
        self._on_failure = on_failure
        self.settled = trio.lowlevel.ParkingLot()
        """Tasks that wait until the acknowledgements of this broker are confirmed, refused or
        lost."""
        self._session = ShareSessionHandler(config.group_id, member_id)
        self._linger_until_ms: int | None = None
        self._may_renew = True
        self._unreported_count = 0
        """Number of failed acknowledgements since the last log message about them."""
        self._report_from_ms = 0
        self._is_closing = False
        self._closed = trio.Event()

    async def run(self) -> None:
        """Open the connection whenever there is work, and use it until it is lost. Runs until
        cancelled."""
        try:
            await super().run()
        finally:
            self._closed.set()

    # Called by the consumer.

    def on_work(self) -> None:
        """Record that a new acknowledgement is waiting. It is sent with the next fetch, or after
        `LINGER_MS`."""
        if self._linger_until_ms is None:
            self._linger_until_ms = now_ms() + LINGER_MS
            self.wake_up.set()

    def on_awaited(self) -> None:
        """Send the waiting acknowledgements now, because a task awaits one of them."""
        self._linger_until_ms = 0
        self.wake_up.set()

    def on_unwatched_failure(self, error: OttlaError) -> None:
        """Count a failed acknowledgement that no task awaits. Logs such failures at most once per
        `REPORT_INTERVAL_MS`."""
        self._unreported_count += 1
        now = now_ms()
        if now >= self._report_from_ms:
            LOG.warning(
                "%d acknowledgements to broker %s have failed, the last one: %s",
                self._unreported_count,
                self.node,
                error,
            )
            self._unreported_count = 0
            self._report_from_ms = now + REPORT_INTERVAL_MS

    def watched(self) -> PendingAcknowledgement:
        """Return a PendingAcknowledgement that a task will await. Its failure is therefore not
        logged."""
        return PendingAcknowledgement(lambda error: None, self.on_awaited)

    async def close(self) -> None:
        """Send all acknowledgements, release all other locked records, and close the share
        session."""
        if not self._session.is_open:
            return
        self._is_closing = True
        self.wake_up.set()
        await self._closed.wait()

    # The connection.

    def _has_work(self) -> bool:
        return not self._is_closing and bool(self._wanted(self.node)) and self._budget(self) > 0

    def _lose(self, why: Loss) -> None:
        if isinstance(why, RefusedError) and not why.is_retriable:
            # Tasks that await acknowledgements, and tasks that poll, receive the same error code.
            self._lose_session(str(why), why.code)
            self._on_failure(why)
        else:
            self._lose_session(str(why))
        for at in self._wanted(self.node).values():
            self._on_stale(at.topic)

    def _lose_session(self, reason: str, code: ErrorCode = ErrorCode.NETWORK_EXCEPTION) -> None:
        """Discard the share session and its records. The broker releases the locks of these
        records. Pending acknowledgements fail with `code`."""
        self.requested_count = 0
        self._linger_until_ms = None
        self._session.on_loss()
        self.hand.lose(
            RefusedError(
                code,
                f"the session with broker {self.node} is lost, with the locks of its records: "
                f"{reason}",
            )
        )
        self.settled.unpark_all()
        if self._is_closing:
            self._closed.set()

    async def _serve(self, pipeline: Pipeline) -> None:
        self._may_renew = pipeline.version_of(SHARE_ACKNOWLEDGE) >= RENEWALS_FROM
        while True:
            now = now_ms()
            self.hand.expire(now)
            if self._is_closing:
                await self._close(pipeline)
                return
            if self.is_renewing and self._may_renew:
                self.hand.renew_due(now, self.watched())
            wanted = self._wanted(self.node)
            waiting = self.hand.waiting_keys()
            if self.hand.has_renewals:
                await self._renew(pipeline)
            elif waiting - wanted.keys() or (waiting and self._linger_until_ms == 0):
                await self._acknowledge(pipeline)  # a fetch would delay the awaited result
            elif wanted and (count := self._budget(self)) > 0:
                await self._fetch(pipeline, wanted, count)
            elif waiting and now >= (self._linger_until_ms or 0):
                await self._acknowledge(pipeline)
            else:
                due = [self._linger_until_ms] if waiting else []
                if self.is_renewing and self._may_renew:
                    due.append(self.hand.renewal_due_ms())
                await self.wake_up.wait(min((one for one in due if one is not None), default=None))

    async def _close(self, pipeline: Pipeline) -> None:
        self.hand.release_all(self.watched())
        while self.hand.waiting_keys():
            await self._acknowledge(pipeline)
            self.hand.expire(now_ms())
        await self._acknowledge(pipeline, is_last=True)
        self._session.on_loss()
        self._closed.set()
        await trio.sleep_forever()

    async def _renew(self, pipeline: Pipeline) -> None:
        if self._may_renew:
            await self._acknowledge(pipeline, is_renewal=True)
            return
        refusal = RefusedError(
            ErrorCode.UNSUPPORTED_VERSION, f"broker {self.node} cannot renew locks"
        )
        for key in self.hand.take(renewals=True):
            self.hand.refuse(key, refusal)

    async def _acknowledge(
        self, pipeline: Pipeline, *, is_renewal: bool = False, is_last: bool = False
    ) -> None:
        acks: Acknowledged = {} if is_last else self.hand.take(renewals=is_renewal)
        if not acks and not is_last:
            await trio.lowlevel.checkpoint()
            return
        request = self._session.acknowledge_request(acks, is_renewal=is_renewal, is_last=is_last)
        if not is_renewal:
            self._linger_until_ms = None
        with trio.move_on_after(self._config.request_timeout_ms / 1_000) as scope:
            answer = await pipeline.request(request, ShareAcknowledgeResponse)
        if scope.cancelled_caught:
            raise ConnectionLostError(f"{pipeline.address} did not answer an acknowledgement")
        if not await self._is_accepted(answer.error_code, answer.error_message):
            return
        self._note_lock(answer.acquisition_lock_timeout_ms)
        results: Results = {}
        for topic in answer.responses:
            for data in topic.partitions:
                key = TopicIdPartition(topic.topic_id, data.partition_index)
                results[key] = data.error_code, data.error_message
        await self._take_results(results)

    async def _take_results(self, results: Results) -> None:
        has_retries = self.hand.on_results(results, now_ms())
        self.settled.unpark_all()
        if self.hand.waiting_keys():
            self._linger_until_ms = self._linger_until_ms or 0
        if has_retries:
            await trio.sleep(self._config.retry_backoff_ms / 1_000)

    async def _is_accepted(self, code: int, message: str | None) -> bool:
        """Return whether the broker has accepted a request.  Raises RefusedError for a permanent
        error."""
        if code == ErrorCode.NONE:
            self._session.on_success()
            return True
        row = row_of(code)
        reason = message or row.meaning
        if code == ErrorCode.UNSUPPORTED_VERSION:
            reason = f"{NO_SHARE_GROUPS} ({reason})"
        if code not in LOST_SESSION and not row.is_retriable:
            raise RefusedError(ErrorCode(row.code), reason)
        self._lose_session(reason)
        await trio.sleep(self._config.retry_backoff_ms / 1_000)
        return False

    def _note_lock(self, lock_ms: int) -> None:
        if lock_ms > 0:
            self.hand.lock_ms = lock_ms

    # Fetching.

    async def _fetch(
        self, pipeline: Pipeline, wanted: Mapping[TopicIdPartition, TopicPartition], count: int
    ) -> None:
        config, hand = self._config, self.hand
        wait_ms = config.fetch_wait_ms_max
        if hand.held_count:
            # Other records are in hand: their acknowledgements and renewals must not be late.
            wait_ms = min(wait_ms, hand.lock_ms // 4)
        request = ShareFetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=config.fetch_bytes_min,
            max_bytes=config.fetch_bytes_max,
            max_records=count,
            batch_size=count,
            share_acquire_mode=ACQUIRE_MODES[config.share_acquire_mode],
        )
        acks = hand.take() if self._session.is_open else {}
        self._session.fill_fetch(request, wanted, acks)
        self._linger_until_ms = None
        self.requested_count = count
        sent_s = trio.current_time()
        try:
            with trio.move_on_after((wait_ms + PATIENCE_MS) / 1_000) as scope:
                answer = await pipeline.request(request, ShareFetchResponse)
        finally:
            self.requested_count = 0
        if scope.cancelled_caught:
            raise ConnectionLostError(f"{pipeline.address} did not answer a fetch")
        if not await self._is_accepted(answer.error_code, answer.error_message):
            return
        self._note_lock(answer.acquisition_lock_timeout_ms)
        for endpoint in answer.node_endpoints:
            self._cluster.learn_address(NodeId(endpoint.node_id), endpoint.host, endpoint.port)
        results: Results = {}
        has_errors, record_count, size_bytes = False, 0, 0
        for topic in answer.responses:
            for data in topic.partitions:
                key = TopicIdPartition(topic.topic_id, data.partition_index)
                results[key] = data.acknowledge_error_code, data.acknowledge_error_message
                size_bytes += len(data.records or b"")
                record_count += sum(
                    one.last_offset + 1 - one.first_offset for one in data.acquired_records
                )
        self._measures.note_fetch(
            latency_s=trio.current_time() - sent_s,
            throttle_ms=answer.throttle_time_ms,
            size_bytes=size_bytes,
            record_count=record_count,
        )
        await self._take_results(results)
        for topic in answer.responses:
            has_errors |= self._take_topic(topic.topic_id, topic.partitions, wanted, sent_s)
        if has_errors or not (record_count or wait_ms):
            await trio.sleep(config.retry_backoff_ms / 1_000)

    def _take_topic(
        self,
        topic_id: UUID,
        partitions: Iterable[PartitionData],
        wanted: Mapping[TopicIdPartition, TopicPartition],
        sent_s: float,
    ) -> bool:
        """Process the records of one topic.  Returns True if the next fetch should be delayed."""
        has_errors = False
        for data in partitions:
            key = TopicIdPartition(topic_id, data.partition_index)
            at = wanted.get(key)
            if at is None:
                continue  # its acknowledgements were processed; nothing was fetched
            try:
                has_errors |= self._take_partition(key, at, data, sent_s)
            except RefusedError as error:
                self._on_failure(error)
                has_errors = True
        return has_errors

    def _take_partition(
        self, key: TopicIdPartition, at: TopicPartition, data: PartitionData, sent_s: float
    ) -> bool:
        if data.error_code != ErrorCode.NONE:
            row = row_of(data.error_code)
            code = ErrorCode(row.code)
            error = RefusedError(code, f"{at}: {data.error_message or row.meaning}")
            if code in MOVED:
                self.hand.lose_partition(key, error)
            if not row.is_retriable or code is ErrorCode.CORRUPT_MESSAGE:
                raise error
            hint = data.current_leader
            leader = KnownLeader(NodeId(hint.leader_id), Epoch(hint.leader_epoch))
            if self._cluster.learn_leader(at, leader):
                self._on_moved()
                return False
            self._on_stale(at.topic)
            return True
        if not data.acquired_records:
            return False
        acquired = [
            LockedOffsets(one.first_offset, one.last_offset, one.delivery_count)
            for one in data.acquired_records
        ]
        assert isinstance(data.records, memoryview | bytes | None)
        self._take_records(key, at, data.records or b"", acquired, sent_s)
        return False

    def _take_records(
        self,
        key: TopicIdPartition,
        at: TopicPartition,
        data: bytes | memoryview,
        ranges: list[LockedOffsets],
        sent_s: float,
    ) -> None:
        try:
            fetched = ShareFetched(
                at, data, ranges, check_crcs=self._config.check_crcs, decoder=self._decoder
            )
            corrupt = None
        except CorruptDataError as error:
            # Where the batches begin is unknown, and so are their records: they come again.
            fetched, corrupt = ShareFetched(at, b"", ranges), error
        now = now_ms()
        offsets = [one for first, last in fetched.left() for one in range(first, last + 1)]
        acquired = AcquiredRecords(
            self.hand,
            key,
            at,
            self.hand.acquire(key, at, offsets, now),
            requested_s=sent_s,
            on_work=self.on_work,
            on_awaited=self.on_awaited,
            on_failure=self.on_unwatched_failure,
        )
        if corrupt is not None:
            acquired.settle(offsets, AcknowledgeType.RELEASE)
            self._on_failure(CorruptDataError(f"{at} at offset {offsets[0]}: {corrupt.where}"))
            return
        self._on_fetched(BufferedRecords(fetched, acquired, self.hand, now))
