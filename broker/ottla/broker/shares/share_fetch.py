"""ShareFetch: acknowledges records, then acquires records for a member and sends them (KIP-932).

Pure, except that a lookup by timestamp awaits. The acknowledgements take effect at once, and become
durable while the fetch reads or waits. The response is sent when the fetch has ended and the
acknowledgements are durable. A fetch with too few bytes waits in the purgatory under the keys of
its partitions and share partitions. It is woken by an append, a release of records, the expiry of a
lock or a loaded state.

Records are acquired in the event-loop iteration in which they are sent. If the client's byte quota
does not allow them, the acquisition is undone in that iteration, so that throttling does not raise
delivery counts. Kafka 4.4 acquires such records, sends an empty response, and archives them after
the last attempt.
"""

from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

from ottla.broker.logs.cold_reads import ColdReads
from ottla.broker.logs.fetch_read import DISK_WAIT_MS, PATIENT
from ottla.broker.logs.leader_hints import HINTED
from ottla.broker.replicas.partition import Partition
from ottla.broker.shares.acknowledgement_rules import AcknowledgedRange
from ottla.broker.shares.acquired_ranges import AcquiredRange, count_of
from ottla.broker.shares.led_share import LedShare, Stage
from ottla.broker.shares.ordered_read import OrderedRead, read_ordered
from ottla.broker.shares.share_delivery import LeaderHints, Session, ShareDelivery, ShareTarget
from ottla.broker.shares.share_read import ShareRead, read_share
from ottla.broker.shares.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    PartitionId,
    SessionKey,
)
from ottla.broker.tier.remote_fetches import RemoteFetches, RemoteKey, RemoteRequest
from ottla.broker.tier.remote_reads import RemoteRead
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.model.limits import MIB
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.node.network.purgatory import WaitingEntry
from ottla.node.network.response_queue import ResponseSlot
from ottla.node.network.steps import Answer, StepPace, Steps, begun
from ottla.storage.disk.disk_seam import NotCachedError
from ottla.storage.log.log import Log
from ottla.wire.messages.share_fetch_request import ShareFetchRequest
from ottla.wire.messages.share_fetch_response import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)

RECORD_LIMIT_MODE = 1
"""Acquire mode of a ShareFetch request that never exceeds `max_records` (KIP-1206). Mode 0 acquires
whole batches."""

PARTITIONS_READ_MAX = 200
"""Maximum number of a session's partitions that one attempt of a ShareFetch reads. The session's
next request begins with the other partitions. A larger value blocks the event loop longer. A
smaller value delays sessions with a large number of partitions."""

SESSION_PARTITIONS_MAX = 100_000
"""Maximum number of partitions in a share session, including partitions that do not exist. A larger
value lets a client use more memory. A smaller value refuses members with a large number of
partitions on one broker."""

ROUNDS_MAX = 16
"""Maximum number of times that one attempt of a ShareFetch reads the partitions. The partitions are
read again if they contained only undeliverable records, such as transaction markers. A larger value
blocks the event loop longer."""


COPIED_READ_BYTES = MIB
"""Maximum number of bytes that one read of a share partition requests from the object store. With a
smaller number, more requests are sent to the store. With a larger number, more memory is used for
records that other members have acquired."""

AnyRead = ShareRead | OrderedRead


class Acquisition(NamedTuple):
    """Records that one attempt of a ShareFetch has acquired from one share partition."""

    target: ShareTarget
    read: AnyRead
    ranges: list[AcquiredRange]


class ShareFetch:
    """ShareFetch request in progress: its share session, its limits, and its response so far."""

    def __init__(
        self, api: "ShareFetchApi", context: RequestContext, request: ShareFetchRequest
    ) -> None:
        self.api = api
        self.context = context
        self.key = SessionKey(request.group_id or "", request.member_id or "")
        self.bytes_max = min(request.max_bytes, api.fetch_bytes_max)
        self.bytes_min = min(request.min_bytes, self.bytes_max)
        self.records_max = request.max_records
        self.wait_ms = max(0, request.max_wait_ms)
        self.batch_size = request.batch_size
        self.is_strict = request.share_acquire_mode == RECORD_LIMIT_MODE
        self.targets: list[ShareTarget] = []
        """Partitions of the share session that this fetch reads, in order."""
        self.parts: dict[PartitionId, PartitionData] = {}
        """Entries of the ShareFetch response, by partition."""
        self.session: Session | None = None
        """Share session whose partitions are read, or None if no partition is read."""
        self.is_full = False
        """True if the response must contain every partition of the session. Otherwise it contains
        only partitions with records or errors."""
        self.is_cold = False
        """True if records for this fetch are being loaded into the page cache, or read from the
        object store."""
        self._acks_left = 0
        self._is_read = False
        charge = context.charge
        if charge is not None:
            self.bytes_max = charge.fetch_bytes_max(self.bytes_max)
            self.bytes_min = min(self.bytes_min, self.bytes_max)

    def part(self, partition_id: PartitionId) -> PartitionData:
        """Return the entry of the ShareFetch response for a partition."""
        part = self.parts.get(partition_id)
        if part is None:
            part = self.parts[partition_id] = PartitionData(
                partition_index=partition_id[1], records=b""
            )
        return part

    # ---- acknowledgements

    def acknowledge(
        self,
        partition_id: PartitionId,
        batches: Sequence[AcknowledgedRange],
        *,
        is_renew_ack: bool,
    ) -> None:
        """Begin to acknowledge records of one partition for the member. The outcome is added to the
        response later."""
        part = self.part(partition_id)
        self._acks_left += 1

        def on_done(code: ErrorCode) -> None:
            part.acknowledge_error_code = code
            self._acks_left -= 1
            self.conclude()

        self.api.delivery.acknowledge(
            self.context, self.key, partition_id, batches, on_done, is_renew_ack=is_renew_ack
        )

    # ---- reading

    def begin(self, session: Session, *, is_full: bool) -> None:
        """Choose the partitions of the share session to read. Each request of a session begins with
        a different partition. Loading begins for share partitions that are not cached."""
        self.session = session
        self.is_full = is_full
        targets = list(session.targets.values())
        step = 1 if len(targets) <= PARTITIONS_READ_MAX else PARTITIONS_READ_MAX - 1
        at = step * session.epoch % len(targets) if targets else 0
        self.targets = (targets[at:] + targets[:at])[:PARTITIONS_READ_MAX]
        for target in self.targets:
            with suppress(RefusedError):
                self.api.delivery.led_share(self.context, self.key, target)

    def targets_by_wake_key(self) -> dict[Hashable, ShareTarget]:
        """Return the purgatory keys that wake this fetch while it waits for records, each with the
        partition that it belongs to."""
        found: dict[Hashable, ShareTarget] = {}
        for target in self.targets:
            if target.led is not None:
                found[target.led] = found[target.led.partition.high_watermark_key] = target
        return found

    def attempt(self, *, is_last: bool) -> bool:
        """Acquire records for the member if enough bytes are available or a partition has an error.
        If `is_last` is True, acquire all available records, even if they are fewer than the member
        requested. Returns whether the fetch is done.
        """
        clock = self.api.delivery.ports.clock
        begun_ms = clock.monotonic_ms()
        is_done = self._attempt(is_last=is_last)
        ended_ms = clock.monotonic_ms()
        for target in self.targets:
            if target.led is not None and target.led.stage is Stage.READY:
                target.led.read_times.note(begun_ms, ended_ms)
        return is_done

    def _attempt(self, *, is_last: bool) -> bool:
        self.is_cold = False
        if self.session is not None and not self.api.delivery.sessions.holds(self.session):
            self.targets = []  # The member has opened another session.
        refusals: dict[PartitionId, ErrorCode] = {}
        acquired: list[Acquisition] = []
        for _ in range(ROUNDS_MAX):
            reads = self._readable(refusals)
            if sum(len(read.piece) for _, read in reads) < self.bytes_min and not is_last:
                break
            found, has_passed = self._acquire(reads, refusals)
            acquired += found
            if found or not has_passed:
                break
        is_urgent = any(code not in PATIENT for code in refusals.values())
        is_refused = bool(refusals) and len(refusals) == len(self.targets)
        if not (acquired or is_urgent or is_refused or is_last or not self.targets):
            return False
        self._fill(acquired, refusals)
        return True

    def _readable(
        self, refusals: dict[PartitionId, ErrorCode]
    ) -> list[tuple[ShareTarget, AnyRead]]:
        """Return the partitions that have records to acquire, each with the records that were read.
        The error codes of other partitions are added to `refusals`."""
        reads: list[tuple[ShareTarget, AnyRead]] = []
        left = self.bytes_max
        for target in self.targets:
            if target.id in refusals:
                continue
            try:
                led = self.api.delivery.led_share(self.context, self.key, target)
                if led.stage is not Stage.READY or left <= 0:
                    continue
                read = self._read(led, left)
            except RefusedError as refusal:
                refusals[target.id] = _code_for_members(refusal.code)
                continue
            if read is not None:
                left -= len(read.piece)
                reads.append((target, read))
        return reads

    def _read(self, led: LedShare, bytes_max: int) -> AnyRead | None:
        """Return the readable records of one share partition. If their bytes are not in the page
        cache, start to load them and return None."""
        try:
            settings = led.apply_settings()
            if led.share.order is not None:
                return read_ordered(led, settings, bytes_max)
            return read_share(led, settings, bytes_max, self._read_copied)
        except NotCachedError as missing:
            if self.api.cold_reads.bring_in(led.partition, missing):
                return self._read(led, bytes_max)
            self.is_cold = True
            return None

    def _read_copied(
        self, partition: Partition, log: Log, offset: Offset, is_committed: bool
    ) -> RemoteRead | None:
        """Return records that only the object store has, if they were read already. Otherwise start
        to read them, and return None. Several attempts may need the same records, so they stay in
        memory for some time."""
        key = RemoteKey(partition, offset, is_committed)
        request = RemoteRequest(key, log, COPIED_READ_BYTES, at_least_one=True)
        read = self.api.remote_fetches.take(request, self.context.arrived_ms, keep=True)
        self.is_cold |= read is None
        return read

    def _acquire(
        self, reads: list[tuple[ShareTarget, AnyRead]], refusals: dict[PartitionId, ErrorCode]
    ) -> tuple[list[Acquisition], bool]:
        """Acquire records from `reads`, the results of reading partitions. Returns the acquired
        records. Also returns whether undeliverable records (such as transaction markers) were
        skipped, so that another read is useful."""
        acquired: list[Acquisition] = []
        has_passed, left, now_ms = (
            False,
            self.records_max,
            self.api.delivery.ports.clock.monotonic_ms(),
        )
        piece_bytes = self.bytes_max // max(1, len(reads))
        for target, read in reads:
            if left <= 0:
                break
            share, partition = read.led.share, read.led.partition
            try:
                if isinstance(read, OrderedRead):
                    ranges = read.acquire(
                        self.key.member_id, records_max=left, bytes_max=piece_bytes, now_ms=now_ms
                    )
                    if ranges:
                        acquired.append(Acquisition(target, read, ranges))
                        left -= count_of(ranges)
                    continue
                ranges = share.acquire(
                    self.key.member_id,
                    read.batches(piece_bytes, is_first=not acquired),
                    fetch_offset=read.fetch_offset,
                    records_max=left,
                    is_strict=self.is_strict,
                    batch_size=self.batch_size,
                    now_ms=now_ms,
                )
            except NotCachedError as missing:
                self.is_cold |= not self.api.cold_reads.bring_in(partition, missing)
                has_passed |= not self.is_cold
                continue
            except CorruptDataError as damage:
                partition.damage = str(damage)
                refusals[target.id] = ErrorCode.CORRUPT_MESSAGE
                continue
            except RefusedError as refusal:
                refusals[target.id] = refusal.code
                continue
            if ranges:
                acquired.append(Acquisition(target, read, ranges))
                left -= count_of(ranges)
            else:
                has_passed |= share.fetch_offset() != read.fetch_offset
        return acquired, has_passed

    def _fill(self, acquired: list[Acquisition], refusals: dict[PartitionId, ErrorCode]) -> None:
        """Add the acquired records and the error codes to the ShareFetch response. If the client's
        quota does not allow the records, undo the acquisitions instead."""
        figures = self.api.delivery.figures
        bodies = [one.read.records_of(one.ranges) for one in acquired]
        charge = self.context.charge
        if charge is not None and not charge.may_give(sum(map(len, bodies)), self.context):
            for one in acquired:
                one.read.led.share.give_back(one.ranges)
                self.api.delivery.ports.purgatory.wake(one.read.led)
            acquired = []
        for one, body in zip(acquired, bodies, strict=False):
            part = self.part(one.target.id)
            part.records = body
            part.acquired_records = [
                AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in one.ranges
            ]
            one.read.led.set_timer()
            one.read.led.partition.traffic.note_fetched(len(body), False, False)
        for partition_id, code in refusals.items():
            self.part(partition_id).error_code = code
            figures.failed_fetch_count += 1
        if self.is_full:
            for target in self.targets:
                self.part(target.id)
        group_id = self.key.group_id
        if self.api.delivery.sessions.has_group(group_id):
            took_ms = self.api.delivery.ports.clock.monotonic_ms() - self.context.arrived_ms
            figures.note_read(group_id, len(self.targets), len(acquired), took_ms)

    # ---- response

    def on_read(self) -> None:
        """Record that this fetch has finished reading. Sends the response if no acknowledgements
        are pending."""
        self._is_read = True
        self.conclude()

    def conclude(self) -> None:
        """Send the ShareFetch response if reading has ended and all acknowledgements have an
        outcome."""
        if self._is_read and not self._acks_left:
            self._is_read = False  # Sent once.
            self.context.complete(self.response())

    def response(self) -> ShareFetchResponse:
        """Build the ShareFetch response from its entries, with the leaders of refused
        partitions."""
        api = self.api
        response = ShareFetchResponse(
            acquisition_lock_timeout_ms=api.delivery.lock_duration_ms(self.key.group_id)
        )
        hints = LeaderHints(api.delivery.table)
        topics: dict[UUID, ShareFetchableTopicResponse] = {}
        for (topic_id, index), part in self.parts.items():
            if part.error_code in HINTED or part.acknowledge_error_code in HINTED:
                leader_id, leader_epoch = hints.leader(topic_id, index)
                part.current_leader = LeaderIdAndEpoch(
                    leader_id=leader_id, leader_epoch=leader_epoch
                )
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = ShareFetchableTopicResponse(topic_id=topic_id)
                response.responses.append(topic)
            topic.partitions.append(part)
        response.node_endpoints = [
            NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in hints.endpoints(self.context)
        ]
        return response


class WaitingShareFetch(WaitingEntry):
    """ShareFetch request that waits in the purgatory for records, and tries to acquire them
    whenever it is woken.

    Members of a group usually wait for the same partitions. Each event of a partition wakes all of
    these requests, but the new records suffice only for a few. The other requests therefore skip a
    partition without available records.
    """

    __slots__ = ("_fetch", "_targets")
    kind = "ShareFetch"

    def __init__(self, fetch: ShareFetch) -> None:
        super().__init__()
        self._fetch = fetch
        self._targets = fetch.targets_by_wake_key()

    @property
    def wake_keys(self) -> list[Hashable]:
        """Purgatory keys that wake this fetch."""
        return [self._fetch, *self._targets]

    @property
    def cost(self) -> int:
        """Number of partitions that an attempt to complete this ShareFetch reads."""
        return max(1, len(self._fetch.targets))

    def try_complete(self) -> bool:
        """Acquire records for the member if there are enough bytes now. Returns True if the fetch
        is done."""
        target = self._targets.get(self.woken_by)
        if target is not None and target.led is not None and not target.led.is_worth_reading:
            return False
        if not self._fetch.attempt(is_last=False):
            return False
        self._fetch.on_read()
        return True

    def on_expire(self) -> None:
        """Acquire the records that are available at the fetch's timeout, and end the fetch."""
        self._fetch.api.delivery.figures.expired_count += 1
        self._fetch.attempt(is_last=True)
        self._fetch.on_read()

    def on_fault(self, fault: Exception) -> None:
        """Close the client's connection after an unexpected error in this waiting ShareFetch."""
        self._fetch.context.fail(fault)


class RefusedSession(WaitingEntry):
    """Refusal to open a share session beyond the maximum number of sessions. The broker sends the
    refusal only after the request's maximum wait, so that the client does not poll without pause.
    """

    __slots__ = ("_slot",)
    kind = "ShareFetch"

    def __init__(self, slot: ResponseSlot) -> None:
        super().__init__()
        self._slot = slot

    def try_complete(self) -> bool:
        """Return False, since only the timeout ends the wait of this refused request."""
        return False

    def on_expire(self) -> None:
        """Refuse to open the share session, with SHARE_SESSION_LIMIT_REACHED."""
        self._slot.complete(ShareFetchResponse(error_code=ErrorCode.SHARE_SESSION_LIMIT_REACHED))

    def on_fault(self, fault: Exception) -> None:
        """Close the client's connection after an unexpected error in this waiting request."""
        self._slot.fail(fault)


def _code_for_members(code: ErrorCode) -> ErrorCode:
    """Return the error code that a member of a share group receives in place of `code`.

    Share consumers do not support OFFSET_MOVED_TO_TIERED_STORAGE, the code for reads below the
    local start of a tiered log.
    """
    if code is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return code


class ShareFetchApi:
    """Handler of ShareFetch, versions 1 and 2."""

    def __init__(
        self,
        delivery: ShareDelivery,
        *,
        cold_reads: ColdReads,
        remote_fetches: RemoteFetches,
        fetch_bytes_max: int,
    ) -> None:
        self.delivery = delivery
        self.cold_reads = cold_reads
        self.remote_fetches = remote_fetches
        self.fetch_bytes_max = fetch_bytes_max

    def handle(self, context: RequestContext, request: ShareFetchRequest) -> HandlerResult:
        """Acknowledge the records that the ShareFetch request names, then read records or wait for
        them."""
        code = self.delivery.refusal(request.group_id, request.member_id)
        if code is ErrorCode.NONE and request.is_renew_ack and _fetches(request):
            code = ErrorCode.INVALID_REQUEST
        if code is not ErrorCode.NONE:
            return ShareFetchResponse(error_code=code)
        return begun(self._serve(context, request))

    def _serve(self, context: RequestContext, request: ShareFetchRequest) -> Answer:
        delivery, fetch = self.delivery, ShareFetch(self, context, request)
        delivery.figures.fetch_count += 1
        epoch = request.share_session_epoch
        if epoch == INITIAL_EPOCH and any(
            partition.acknowledgement_batches
            for topic in request.topics
            for partition in topic.partitions
        ):
            return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        try:
            session = self._session_of(context, fetch.key, epoch)
        except RefusedError as refusal:
            if refusal.code is not ErrorCode.SHARE_SESSION_LIMIT_REACHED or not fetch.wait_ms:
                return ShareFetchResponse(error_code=refusal.code)
            self._refuse_later(context, fetch.wait_ms)
            return None
        if not (yield from self._begin_acks(fetch, session, request)):
            return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        if epoch == FINAL_EPOCH:
            delivery.close(session)
        elif not delivery.sessions.holds(session):
            return ShareFetchResponse(error_code=ErrorCode.SHARE_SESSION_NOT_FOUND)
        elif not request.is_renew_ack:
            fetch.begin(session, is_full=epoch == INITIAL_EPOCH)
            coming = [
                target.led
                for target in fetch.targets
                if target.led is not None and target.led.stage is Stage.NEEDS_OFFSET
            ]
            if coming:
                return self._look_up_offsets(fetch, coming)
            self._read_or_wait(fetch)
            return None
        fetch.on_read()
        return None

    def _begin_acks(
        self, fetch: ShareFetch, session: Session, request: ShareFetchRequest
    ) -> Steps[bool]:
        """Begin the acknowledgements in a ShareFetch request, and apply the request's partition
        changes to the share session.

        Returns False if the session would have too many partitions.
        """
        is_open = request.share_session_epoch != FINAL_EPOCH
        pace = StepPace()
        has_acks = False
        for topic in request.topics:
            for partition in topic.partitions:
                partition_id = topic.topic_id, partition.partition_index
                if is_open and partition_id not in session.targets:
                    if len(session.targets) >= SESSION_PARTITIONS_MAX:
                        return False
                    session.targets[partition_id] = ShareTarget(partition_id)
                if partition.acknowledgement_batches:
                    has_acks = True
                    fetch.acknowledge(
                        partition_id,
                        partition.acknowledgement_batches,
                        is_renew_ack=request.is_renew_ack,
                    )
                if pace.is_due(1 + len(partition.acknowledgement_batches)):
                    yield
        self.delivery.figures.acknowledge_count += has_acks
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                session.targets.pop((forgotten.topic_id, index), None)
                if pace.is_due():
                    yield
        return True

    def _session_of(self, context: RequestContext, key: SessionKey, epoch: int) -> Session:
        sessions = self.delivery.sessions
        if epoch == INITIAL_EPOCH:
            return sessions.open(key, context.peer.connection_id)
        return sessions.find(key, epoch)

    async def _look_up_offsets(self, fetch: ShareFetch, coming: list[LedShare]) -> None:
        """Look up the start offsets of new share partitions by timestamp, then read records or wait
        for them."""
        for led in coming:
            await led.look_up_offset()
        self._read_or_wait(fetch)

    def _read_or_wait(self, fetch: ShareFetch) -> None:
        context = fetch.context
        is_done = fetch.attempt(is_last=False)
        if not is_done and not fetch.wait_ms and not fetch.is_cold:
            is_done = fetch.attempt(is_last=True)
        if is_done:
            fetch.on_read()
            return
        entry = WaitingShareFetch(fetch)
        wait_ms = max(fetch.wait_ms, DISK_WAIT_MS) if fetch.is_cold else fetch.wait_ms
        purgatory = self.delivery.ports.purgatory
        purgatory.watch(entry.wake_keys, entry, context.arrived_ms + wait_ms)
        context.on_abandoned = lambda: purgatory.cancel(entry)

    def _refuse_later(self, context: RequestContext, wait_ms: int) -> None:
        entry, purgatory = RefusedSession(context), self.delivery.ports.purgatory
        purgatory.watch((entry,), entry, context.arrived_ms + wait_ms)
        context.on_abandoned = lambda: purgatory.cancel(entry)


def _fetches(request: ShareFetchRequest) -> bool:
    """Return whether a ShareFetch request fetches records. A request that renews locks must not
    fetch records."""
    return bool(
        request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms
    )
