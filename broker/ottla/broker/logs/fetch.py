"""Fetch: reads many partitions, and waits for more records if there are too few.

Pure; nothing awaits. `FetchApi.handle` serves every request. A `FlatFetch` is a request for one
partition that is read directly from its bytes, without message objects. If the response contains
this partition without an error, it is also encoded without message objects.

A response contains file slices, which the connection sends with sendfile. A fetch with too few
bytes waits in the purgatory under its partitions. An append or an advance of the high watermark
wakes the fetch; nothing polls. A follower's fetch also reports the follower's log end offset. A
separate step (`note_positions`) stores this offset in the partitions, which may advance the high
watermark. A read never advances the high watermark.
"""

from collections.abc import Collection, Iterable
from functools import partial

from ottla.broker.logs.cold_reads import BringIn, ColdReads
from ottla.broker.logs.fetch_answers import add_results
from ottla.broker.logs.fetch_read import (
    NO_REPLICA,
    PATIENT,
    RACK_FROM,
    READ_COMMITTED,
    READ_TOPIC,
    REMOTE_WAIT_MS,
    REPLICA_STATE_FROM,
    FetchForm,
    FetchLimits,
    FetchReading,
    FetchTarget,
    PartitionResult,
    RemoteOffsetError,
    asked_partitions,
    check_readable,
    cold,
    damaged,
    extended_wait,
    find_partition,
    is_impatient,
    is_read_ahead,
    leaves_something,
    may_be_held_back,
    read_partition,
    read_remote,
    redirected,
    refused,
    targets_by_key,
    targets_of,
    throttled_bytes,
)
from ottla.broker.logs.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    FetchSessionCache,
    flat_target,
)
from ottla.broker.logs.replica_selection import RackAwareSelector
from ottla.broker.quotas.replication_quota import ReplicationQuota
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.tier.remote_fetches import RemoteFetches, no_remote_fetches
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import NodeId, Offset
from ottla.model.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.node.authorization.questions import may
from ottla.node.network.dispatch import HandlerResult, Permissions, RequestContext
from ottla.node.network.purgatory import Purgatory, WaitingEntry
from ottla.node.network.request_times import RequestTimes
from ottla.node.network.steps import STEP_COST, Answer, StepPace, Steps, begun
from ottla.storage.disk.disk_seam import NotCachedError
from ottla.storage.disk.slice import FileSlice
from ottla.wire.apis import FETCH_TOPIC_IDS_FROM
from ottla.wire.flat.flat_fetch import FlatFetch, flat_fetch_answer
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.messages.fetch_response import FetchResponse

PARTITIONS_READ_AGAIN = 32
"""Maximum number of partitions for which a waiting fetch without a session reads all of its
partitions when it is woken. A fetch of more partitions reads only the partition that woke it, and
builds its response in steps. With a larger value, one append blocks the event loop longer if many
such fetches wait."""

FULL_EPOCHS = (FINAL_EPOCH, INITIAL_EPOCH)
"""Session epochs of full Fetch requests, which name all of their partitions."""

PLACES_MAX = 256
"""Maximum number of cached partition lookups, by topic and index bytes in a `FlatFetch` (the bytes
of a one-partition fetch). A smaller value repeats lookups. A larger value keeps old partitions."""


NO_TARGETS: list[FetchTarget] = []
"""Empty list of partitions, for a fetch that has not begun; never modified."""


class Fetch(FetchLimits):
    """Fetch request in progress: its limits, partitions and session, and its response."""

    __slots__ = (
        "_api",
        "context",
        "flat",
        "flat_target",
        "opens_session",
        "session",
        "session_epoch",
        "targets",
    )

    def __init__(self, api: "FetchApi", context: RequestContext, request: FetchForm) -> None:
        version = context.header.api_version
        if version >= REPLICA_STATE_FROM:
            state = request.replica_state
            self.replica_id = state.replica_id
            self.replica_epoch = state.replica_epoch
        else:
            self.replica_id = request.replica_id
            self.replica_epoch = -1
        is_from_follower = self.is_from_follower = self.replica_id >= 0
        self.is_read_committed = request.isolation_level == READ_COMMITTED
        self.uses_topic_ids = version >= FETCH_TOPIC_IDS_FROM
        self.reads_followers = False
        self.rack = ""
        if api.selector is not None and version >= RACK_FROM and not is_from_follower:
            self.reads_followers = True
            self.rack = request.rack_id
        bytes_max, bytes_min = request.max_bytes, request.min_bytes
        if bytes_max > api.fetch_bytes_max:
            bytes_max = api.fetch_bytes_max
        self.whole_batches = False
        charge = context.charge
        if charge is not None:
            if is_from_follower:
                charge.is_exempt = True
            else:
                bytes_max = charge.fetch_bytes_max(bytes_max)
                self.whole_batches = True
        self.bytes_max = bytes_max
        self.bytes_min = bytes_min if bytes_min < bytes_max else bytes_max
        self._api = api
        self.context = context
        self.targets = NO_TARGETS
        """Partitions to read. The list is empty if the fetch continues a session."""
        self.session: FetchSession | None = None
        """Fetch session that the request continues, or None if the request has no session."""
        self.session_epoch = 0
        """Epoch of the session when the fetch began; 0 without a session."""
        self.opens_session = False
        self.flat: FlatFetch | None = None
        """The request as a `FlatFetch` (read directly from its bytes), or None if it is decoded."""
        self.flat_target: FetchTarget | None = None
        """Partition to read for a `FlatFetch`, or None if the request was decoded."""

    def is_enough(self, reading: FetchReading) -> bool:
        """Return whether the records and errors read so far suffice to answer the fetch now."""
        if reading.is_cold and reading.waits_for_disk:
            return False
        if reading.byte_count >= self.bytes_min or reading.is_urgent:
            return True
        session = self.session
        count = len(self.targets if session is None else session.targets)
        return reading.readable_count == 0 and len(reading.results) == count

    def start_reading(self) -> FetchReading:
        """Return an empty `FetchReading` (results of one read) for the partitions that may have new
        records or changed offsets."""
        session = self.session
        return FetchReading(self.targets if session is None else session.to_look_at())

    def read_step(self, reading: FetchReading) -> bool:
        """Read the partitions of the next step within the fetch's limits. If the client is a
        follower, store the positions that it reported. Returns whether more partitions are left."""
        due = reading.due
        if len(due) <= STEP_COST:
            self.read_some(reading, due)
            if self.is_from_follower:
                self.note_positions(reading)
            return False
        at = len(reading.results)
        self.read_some(reading, due[at : at + STEP_COST])
        self.note_positions(reading, since=at)
        return len(reading.results) < len(due)

    def read(self) -> FetchReading:
        """Read all partitions of this fetch at once, and return the results."""
        reading = self.start_reading()
        while self.read_step(reading):
            pass
        return reading

    def read_some(self, reading: FetchReading, due: Iterable[FetchTarget]) -> None:
        """Read the partitions in `due`, within the byte limit that earlier reads left."""
        api, context = self._api, self.context
        left, is_first = self.bytes_max - reading.byte_count, not reading.byte_count
        readers = api.cold_reads.readers
        permissions = None if self.is_from_follower else context.permissions
        readable = None if permissions is None else permissions.allowed_before(READ_TOPIC)
        is_limited = is_exceeded = False
        piece_bytes = 0
        if self.is_from_follower and api.replication_quota.is_limited:
            is_limited, is_exceeded = True, api.replication_quota.is_exceeded()
            piece_bytes = 0 if is_exceeded else api.replication_quota.piece_bytes
        for target in due:
            partition = target.partition
            try:
                if partition is None or partition.is_removed:
                    partition = api.resolve(target, self, permissions)
                if readable is not None and partition.topic not in readable:
                    assert permissions is not None
                    check_readable(permissions, partition.topic)
                if self.rack and self._redirect(reading, partition, target):
                    continue
                bytes_max = target.partition_bytes_max
                if bytes_max > left:
                    bytes_max = left
                is_throttled = is_limited and may_be_held_back(partition, self.replica_id)
                if is_throttled:
                    bytes_max = min(bytes_max, piece_bytes - reading.throttled_byte_count)
                result = read_partition(
                    partition,
                    target,
                    self,
                    bytes_max if bytes_max > 0 else 0,
                    is_first and not (is_throttled and is_exceeded),
                    not readers or not is_read_ahead(partition, readers),
                    context.arrived_ms,
                )
                reading.readable_count += 1
                if is_throttled:
                    reading.throttled_byte_count += result.size
                    reading.is_throttled |= is_exceeded
                if result.diverging is not None:
                    reading.is_urgent = True
            except NotCachedError as missing:
                assert partition is not None
                if api.cold_reads.bring_in(partition, missing):
                    self.read_some(reading, (target,))
                    left, is_first = self.bytes_max - reading.byte_count, not reading.byte_count
                    continue
                result = cold(reading, partition, target)
            except RemoteOffsetError:
                assert partition is not None
                result = read_remote(
                    api.remote_fetches, reading, partition, target, self, left, context.arrived_ms
                )
            except RefusedError as error:
                result = refused(target, error.code)
                reading.is_urgent |= error.code not in PATIENT
            except CorruptDataError as damage:
                assert partition is not None
                result = damaged(reading, partition, target, damage)
            size = result.size
            if size:
                if readers and partition is not None and isinstance(result.records, FileSlice):
                    api.cold_reads.note_read(partition, result.records)
                is_first = False
                left -= size
                reading.byte_count += size
            reading.results.append(result)

    def _redirect(self, reading: FetchReading, partition: Partition, target: FetchTarget) -> bool:
        """Redirect the consumer to a nearer replica (KIP-392). Returns False if none is nearer."""
        selector, context = self._api.selector, self.context
        assert selector is not None, "a rack is noted for a selector only"
        rack, offset, listener = self.rack, target.fetch_offset, context.peer.listener_name
        nearer = selector.preferred(partition, rack, offset, listener, context.arrived_ms)
        if nearer == NO_REPLICA:
            return False
        reading.results.append(redirected(partition, target, nearer))
        reading.readable_count += 1
        reading.is_urgent = True
        return True

    def note_positions(self, reading: FetchReading, since: int = 0) -> None:
        """Store the follower's log start and end offsets in each partition that was read.

        Each position in a request is stored once. When a waiting fetch is read again, a later
        request of the follower may have reported more. The fetch offset of a diverging log is not
        stored, since it is not the end of a common prefix.
        """
        if not self.is_from_follower:
            return
        with self._api.one_event:
            for at, result in enumerate(reading.results[since:], since):
                target = result.target
                is_asked, target.is_asked = target.is_asked, False
                partition = target.partition
                if result.error_code or result.diverging is not None or partition is None:
                    continue
                if is_asked or self._is_taken_back(partition, target):
                    try:
                        self._note_position(partition, target)
                    except RefusedError as error:
                        reading.refuse(at, error.code)
                        continue
                    result.high_watermark = partition.high_watermark
                reading.is_urgent |= (
                    target.replica_high_watermark < result.high_watermark
                    or 0 <= target.seen_log_start_offset < result.log_start_offset
                )

    def _note_position(self, partition: Partition, target: FetchTarget) -> None:
        partition.on_follower_fetch(
            NodeId(self.replica_id),
            end_offset=Offset(target.fetch_offset),
            log_start_offset=Offset(target.log_start_offset),
            broker_epoch=self.replica_epoch,
            now_ms=self.context.arrived_ms,
        )

    def _is_taken_back(self, partition: Partition, target: FetchTarget) -> bool:
        """Return whether a partition now stores a lower end offset for the follower than this
        waiting fetch reported."""
        known = partition.followers.get(NodeId(self.replica_id))
        return known is not None and known.end_offset < target.fetch_offset

    def answer(self, reading: FetchReading) -> FetchResponse | Steps[FetchResponse] | None:
        """Charge the fetch to the client's quota, and build the response. The offsets in the
        response are stored in the fetch session.

        A response with many partitions takes several steps. Returns None if the response to a
        `FlatFetch` was encoded directly and sent.
        """
        context, session = self.context, self.session
        session_id = NO_SESSION if session is None else session.session_id
        charge = context.charge
        if charge is not None and not charge.may_give(reading.byte_count, context):
            return FetchResponse(session_id=session_id)  # without records
        results = reading.results
        if self.opens_session:
            session_id = self._open_session(results)
        if len(results) > STEP_COST:
            return begun(self._answer_many(session_id, results))
        if session is not None:
            reported = self._reported(session, results)
            if reported is None:
                return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            results = reported
        self._api.count(self.is_from_follower, results)
        flat = self.flat
        if flat is not None and len(results) == 1:
            (result,) = results
            if (
                result.target is self.flat_target
                and not result.error_code
                and result.diverging is None
                and result.preferred_replica == NO_REPLICA
                and not result.aborted
            ):
                frame = flat_fetch_answer(
                    context.correlation_id,
                    context.settle_charge(),
                    session_id,
                    flat.place,
                    result.high_watermark,
                    result.last_stable_offset,
                    result.log_start_offset,
                    result.aborted is not None,
                    result.records,
                    result.size,
                )
                context.complete_frame(frame)
                return None
        response = FetchResponse(session_id=session_id)
        add_results(response, self.context, self._api.table, results)
        return response

    def _answer_many(self, session_id: int, results: list[PartitionResult]) -> Steps[FetchResponse]:
        """Build a Fetch response with many partitions in steps."""
        session = self.session
        response = FetchResponse(session_id=session_id)
        for at in range(0, len(results), STEP_COST):
            if at:
                yield
            some: list[PartitionResult] | None = results[at : at + STEP_COST]
            if session is not None and some is not None:
                some = self._reported(session, some)
            if some is None:
                return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            self._api.count(self.is_from_follower, some)
            add_results(response, self.context, self._api.table, some)
        return response

    def _reported(
        self, session: FetchSession, results: list[PartitionResult]
    ) -> list[PartitionResult] | None:
        """Store the offsets in this response in the session. Returns the results that the response
        must include, or None if another request of the session was answered first."""
        if session.epoch != self.session_epoch:
            return None
        self._settle(session, results)
        return [result for result in results if result.target.must_report(result)]

    def _open_session(self, results: list[PartitionResult]) -> int:
        for result in results:
            result.target.must_report(result)
        session = self._api.open_session(self.targets, self, self.context.arrived_ms)
        if session is None:
            return NO_SESSION
        if self.context.permissions is not None:
            session.permissions_version = self.context.permissions.version
        self._settle(session, results)
        return session.session_id

    def read_and_answer(self) -> Answer:
        """Return the steps that read all partitions of this fetch and build its response."""
        reading = self.start_reading()
        while self.read_step(reading):
            yield
        return self.answer(reading)

    def _settle(self, session: FetchSession, results: list[PartitionResult]) -> None:
        for result in results:
            session.settle(
                result.target,
                had_records=result.size > 0,
                has_more=leaves_something(result, self),
                has_failed=result.error_code != 0,
            )


class WaitingFetch(WaitingEntry):
    """Fetch request that waits in the purgatory. When it is woken, it reads all partitions that may
    have new records or changed offsets."""

    __slots__ = ("_fetch", "waits_for_disk")
    kind = "Fetch"

    def __init__(self, fetch: Fetch) -> None:
        super().__init__()
        self._fetch = fetch
        self.waits_for_disk = False
        """True if the fetch still waits after the client's maximum wait time, because its records
        are being loaded from disk or the object store."""

    @property
    def keys(self) -> Collection[object]:
        """Wake-up keys of this fetch in the purgatory: its fetch session, which is notified of the
        events in its partitions, or without a session the keys of its partitions."""
        session = self._fetch.session
        if session is not None:
            return (session,)
        return targets_by_key(self._fetch.targets, self._fetch.is_from_follower)

    @property
    def cost(self) -> int:
        """Number of partitions that an attempt to complete this fetch reads."""
        session = self._fetch.session
        return max(1, len(self._fetch.targets) if session is None else session.look_at_count)

    def try_complete(self) -> bool:
        """Send the Fetch response if there are enough records now. Returns True if it was sent."""
        reading = self._fetch.read()
        is_here = self.waits_for_disk and not reading.waits_for_disk
        if not is_here and not self._fetch.is_enough(reading):
            return False
        self._answer(reading)
        return True

    def on_expire(self) -> None:
        """Answer the fetch at its timeout with the records that are available then."""
        self._answer(self._fetch.read())

    def on_fault(self, fault: Exception) -> None:
        """Close the client's connection after an unexpected error in this waiting fetch."""
        self._fetch.context.fail(fault)

    def _answer(self, reading: FetchReading) -> None:
        result = self._fetch.answer(reading)
        if result is not None:
            self._fetch.context.complete_begun(result)


class WaitingFetchOfMany(WaitingFetch):
    """Fetch request for many partitions without a session, which waits in the purgatory.

    It stores the available bytes of each partition, reads only the partition that wakes it, and
    builds its response in steps. Many such fetches may wait for one partition. Without this class,
    an append to that partition would make each fetch read all of its partitions.
    """

    __slots__ = ("_byte_count", "_sizes", "_targets")

    def __init__(self, fetch: Fetch, reading: FetchReading) -> None:
        super().__init__(fetch)
        self._targets = targets_by_key(fetch.targets, fetch.is_from_follower)
        self._byte_count = reading.byte_count
        self._sizes = {result.target: result.size for result in reading.results if result.size}

    @property
    def keys(self) -> Collection[object]:
        """Wake-up keys in the purgatory of all partitions of this fetch."""
        return self._targets

    @property
    def cost(self) -> int:
        """Number of partitions that one attempt reads: only the partition that woke this fetch."""
        return 1

    def try_complete(self) -> bool:
        """Read the partition that woke this fetch. Sends the response if the total bytes now
        suffice, or if the partition has an error. Returns True if the response was sent."""
        target = self._targets.get(self.woken_by)
        if target is None:
            return False
        fetch, reading = self._fetch, FetchReading([target])
        fetch.read_some(reading, reading.due)
        fetch.note_positions(reading)
        self._byte_count += reading.byte_count - self._sizes.get(target, 0)
        self._sizes[target] = reading.byte_count
        if not reading.is_urgent and self._byte_count < fetch.bytes_min:
            return False
        self.on_expire()
        return True

    def on_expire(self) -> None:
        """Answer the fetch at its timeout, in steps, with the records that are available then."""
        self._fetch.context.complete_by(self._fetch.read_and_answer())


def waiting(fetch: Fetch, reading: FetchReading) -> WaitingFetch:
    """Return the purgatory entry for a fetch whose first read did not find enough records."""
    if fetch.session is None and len(fetch.targets) > PARTITIONS_READ_AGAIN:
        return WaitingFetchOfMany(fetch, reading)
    return WaitingFetch(fetch)


class FetchApi:
    """Handler of Fetch, versions 4 to 18."""

    def __init__(
        self,
        *,
        table: PartitionTable,
        purgatory: Purgatory,
        sessions: FetchSessionCache,
        fetch_bytes_max: int,
        bring_in: BringIn,
        replication_quota: ReplicationQuota,
        remote_fetches: RemoteFetches | None = None,
        remote_wait_ms: int = REMOTE_WAIT_MS,
        times: RequestTimes | None = None,
        selector: RackAwareSelector | None = None,
    ) -> None:
        self.table = table
        self.selector = selector
        """Object that selects the replicas from which consumers should fetch, or None if they fetch
        from leaders only."""
        self.replication_quota = replication_quota
        """Quota for the records that this broker, as a leader, sends to throttled replicas."""
        self.cold_reads = ColdReads(bring_in, purgatory.wake)
        self.remote_fetches = remote_fetches or no_remote_fetches(purgatory.wake)
        """Reads of records that only the object store has, in progress or completed."""
        self.remote_wait_ms = remote_wait_ms
        """Maximum time in milliseconds that a Fetch waits for records from the object store
        (remote.fetch.max.wait.ms)."""
        self.one_event = purgatory.one_event
        self._purgatory = purgatory
        self.sessions = sessions
        self._times = times
        self.fetch_bytes_max = fetch_bytes_max
        """Maximum bytes of records in a Fetch response. A response may exceed it only with a single
        batch."""
        sessions.on_target_closed = self._stop_listening
        self._places: dict[bytes, Partition] = {}
        """Cached partitions, by the topic and index bytes of one-partition fetches."""

    def handle(self, context: RequestContext, request: FetchForm) -> HandlerResult:
        """Read the partitions of any Fetch request. Answers at once if there are enough records or
        the client does not wait. Otherwise the request waits in the purgatory."""
        fetch = Fetch(self, context, request)
        if fetch.is_from_follower:
            if self._times is not None:
                context.times = self._times.of_followers(context.header.api_version)
            code = self._follower_refusal(context, fetch)
            if code is not ErrorCode.NONE:
                return begun(self._refuse_follower(request, fetch, code))
        try:
            session = self._session_of(request, fetch)
        except RefusedError as error:
            return FetchResponse(error_code=error.code)
        if isinstance(request, FlatFetch):
            partition = self._look_up(request)
            if partition is not None:
                fetch.flat = request
                target = fetch.flat_target = flat_target(request, partition, session)
                return self._begin(request, fetch, session, [target])
        return begun(self._serve_decoded(request, fetch, session))

    def _serve_decoded(
        self, request: FetchForm, fetch: Fetch, session: FetchSession | None
    ) -> Answer:
        """Serve a Fetch request that names any number of partitions, in steps if there are many."""
        try:
            targets = yield from self._targets_of(request, fetch, session)
        except RefusedError as error:
            return FetchResponse(error_code=error.code)
        return self._begin(request, fetch, session, targets)

    def _begin(
        self,
        request: FetchForm,
        fetch: Fetch,
        session: FetchSession | None,
        targets: list[FetchTarget],
    ) -> HandlerResult:
        """Begin a fetch: read the partitions of a full request, or the partitions of the session
        that may have new records or changed offsets."""
        fetch.targets = targets
        if session is None:
            fetch.opens_session = request.session_epoch == INITIAL_EPOCH and len(targets) > 0
        elif session.targets:
            self._note_use(fetch.context, session)
            fetch.session, fetch.session_epoch = session, session.epoch
        else:
            self.sessions.close(session.session_id)
        reading = fetch.start_reading()
        if fetch.read_step(reading):
            return self._read_rest(request, fetch, reading)
        return self._conclude(request, fetch, reading)

    def _read_rest(self, request: FetchForm, fetch: Fetch, reading: FetchReading) -> Answer:
        """Read, in steps, the partitions of a fetch that the first step did not read."""
        yield
        while fetch.read_step(reading):
            yield
        return self._conclude(request, fetch, reading)

    def _conclude(self, request: FetchForm, fetch: Fetch, reading: FetchReading) -> HandlerResult:
        """Answer a fetch with the records read, or put it into the purgatory."""
        if fetch.is_enough(reading) or is_impatient(request, reading):
            return fetch.answer(reading)
        self._park(request, fetch, reading)
        return None

    def _session_of(self, request: FetchForm, limits: FetchLimits) -> FetchSession | None:
        """Return the fetch session that an incremental request continues.

        Returns None for a full request, and closes the session that the full request names. Raises
        RefusedError if the session cannot be continued.
        """
        if request.session_epoch in FULL_EPOCHS:
            if request.session_id != NO_SESSION:
                self.sessions.close(request.session_id)
            return None
        return self.sessions.continue_session(
            request, replica_id=limits.replica_id, uses_topic_ids=limits.uses_topic_ids
        )

    def _targets_of(
        self, request: FetchForm, limits: FetchLimits, session: FetchSession | None
    ) -> Steps[list[FetchTarget]]:
        """Return the partitions to read for a full request, in steps.

        An incremental request is applied to its fetch session, and the result is an empty list.
        Raises RefusedError if the session is closed in the meantime.
        """
        if session is None:
            return (yield from targets_of(request, limits.uses_topic_ids))
        pace = StepPace()
        for key, topic, topic_id, asked in asked_partitions(request, limits.uses_topic_ids):
            session.ask(key, topic, topic_id, asked.partition, asked)
            if pace.is_due():
                yield
                if not self.sessions.holds(session):
                    raise RefusedError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        for gone in session.forget(request):
            self._stop_listening(gone)
        return []

    def _note_use(self, context: RequestContext, session: FetchSession) -> None:
        """Update the time at which the fetch session was last used. If the client's permissions
        changed, schedule a new permission check of its partitions."""
        self.sessions.touch(session, context.arrived_ms)
        if context.permissions is not None:
            session.check_again(context.permissions.version)

    def _park(self, request: FetchForm, fetch: Fetch, reading: FetchReading) -> None:
        entry, context = waiting(fetch, reading), fetch.context
        wait_ms = request.max_wait_ms
        if reading.waits_for_disk:
            wait_ms, entry.waits_for_disk = extended_wait(reading, wait_ms, self.remote_wait_ms)
        if reading.is_throttled:  # Read again when the rate has fallen.
            wait_ms = min(wait_ms, self.replication_quota.delay_ms())
        self._purgatory.watch(entry.keys, entry, context.arrived_ms + wait_ms)
        context.on_abandoned = lambda: self._purgatory.cancel(entry)

    def _follower_refusal(self, context: RequestContext, limits: FetchLimits) -> ErrorCode:
        """Return the error code with which a follower's whole fetch is refused. Returns NONE for an
        accepted follower, and for a consumer."""
        if not limits.is_from_follower:
            return ErrorCode.NONE
        operation, cluster = AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER
        if not may(context.permissions, operation, cluster, CLUSTER_NAME):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED  # The same error code as Kafka's.
        if not self.is_registered(limits):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def is_registered(self, limits: FetchLimits) -> bool:
        """Return whether the metadata image has a broker with the follower's id and epoch
        (KIP-903).

        Only the positions of a registered follower are trusted. An earlier incarnation may have
        lost records since its report. An epoch above the registered epoch is either forged, or
        belongs to a new incarnation that the image does not contain yet.
        """
        broker = self.table.image.brokers.get(NodeId(limits.replica_id))
        return broker is not None and broker.epoch == limits.replica_epoch

    def _refuse_follower(self, request: FetchForm, fetch: Fetch, code: ErrorCode) -> Answer:
        """Refuse each partition that a follower's fetch names. No partition is read, and no session
        is changed."""
        targets = yield from targets_of(request, fetch.uses_topic_ids)
        reading = FetchReading(targets)
        reading.results = [refused(target, code) for target in targets]
        return fetch.answer(reading)

    def _look_up(self, request: FlatFetch) -> Partition | None:
        """Look up the partition of a `FlatFetch` (a fetch of one partition, read directly from its
        bytes) and cache it. Returns None if the partition is not on this broker."""
        found = self._places.get(request.place)
        if found is not None and not found.is_removed:
            return found
        partitions = self.table.by_id.get(request.topic_id)
        partition = None if partitions is None else partitions.get(request.partition)
        if partition is not None:
            if len(self._places) >= PLACES_MAX:
                self._places.clear()
            self._places[request.place] = partition
        return partition

    def open_session(
        self, targets: list[FetchTarget], limits: FetchLimits, now_ms: int
    ) -> FetchSession | None:
        """Open a session over a full request's partitions. Returns None if no slot is free."""
        session = self.sessions.open(
            {target.key: target for target in targets},
            replica_id=limits.replica_id,
            uses_topic_ids=limits.uses_topic_ids,
            now_ms=now_ms,
        )
        if session is not None:
            session.on_due = partial(self._purgatory.wake, session)
            for target in targets:
                self._listen(target)
        return session

    def resolve(
        self, target: FetchTarget, limits: FetchLimits, permissions: Permissions | None
    ) -> Partition:
        """Return the partition of a fetch target, and subscribe the target to the events of the
        partition.

        Raises RefusedError if this broker has no replica of the partition. If the client lacks READ
        permission, the error does not reveal whether the topic exists.
        """
        self._stop_listening(target)
        target.partition = None
        try:
            target.partition = partition = find_partition(self.table, target, limits)
        except RefusedError:
            name = target.topic or self.table.topic_name(target.topic_id)
            if permissions is not None and name is not None:
                check_readable(permissions, name)
            raise
        self._listen(target)
        return partition

    def _listen(self, target: FetchTarget) -> None:
        partition, session = target.partition, target.session
        if partition is not None and session is not None:
            self._purgatory.listen(partition.high_watermark_key, target)
            if session.is_privileged:
                self._purgatory.listen(partition.end_offset_key, target)

    def _stop_listening(self, target: FetchTarget) -> None:
        partition = target.partition
        if partition is not None:
            self._purgatory.unlisten(partition.high_watermark_key, target)
            self._purgatory.unlisten(partition.end_offset_key, target)

    def count(self, is_from_follower: bool, results: list[PartitionResult]) -> None:
        """Count the results of a Fetch response in the metrics, and their bytes in the leader's
        replication quota."""
        if is_from_follower and self.replication_quota.is_limited:
            self.replication_quota.record(throttled_bytes(results))
        for result in results:
            error_code, partition = result.error_code, result.target.partition
            if partition is not None:
                partition.traffic.note_fetched(result.size, is_from_follower, error_code != 0)
            if error_code and self._times is not None:
                self._times.note_refusal(FetchRequest.API_KEY, error_code)
