"""Fetch: reads many partitions at once, or waits until there is enough to read.

Pure; nothing awaits.  An answer holds slices of files, which the connection sends with sendfile.
A fetch with too few bytes waits in the purgatory under its partitions and is woken by the append
or the high watermark itself, never by polling.  A follower's fetch also says where its own log
ends.  Its partitions note that in a step of its own (`note_positions`), which is what moves the
high watermark; reading moves nothing.
"""

from collections.abc import Iterable
from functools import partial

from ottla.broker.authorization.questions import may
from ottla.broker.logs.cold_reads import BringIn, ColdReads
from ottla.broker.logs.fetch_read import (
    PATIENT,
    READ_TOPIC,
    FetchLimits,
    FetchTarget,
    Reading,
    TargetKey,
    asked_partitions,
    check_readable,
    find_partition,
    leaves_something,
    may_be_held_back,
    read_partition,
    refused,
    targets_of,
    throttled_bytes,
    unread,
)
from ottla.broker.logs.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    FetchSessionCache,
)
from ottla.broker.logs.leader_hints import HINTED, endpoints_of
from ottla.broker.logs.waiting_fetch import waiting
from ottla.broker.network.dispatch import Permissions, RequestContext
from ottla.broker.network.purgatory import Purgatory
from ottla.broker.network.request_times import RequestTimes
from ottla.broker.network.steps import STEP_COST, Answer, StepPace, Steps
from ottla.broker.quotas.replication_quota import ReplicationQuota
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.model.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import NodeId, Offset
from ottla.storage.disk_seam import NotCachedError
from ottla.storage.slice import FileSlice
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

DISK_WAIT_MS = 1_000
"""How long a fetch at least waits for a disk before it is answered without records.  Less answers
clients of a slow disk in vain, more lets a client without patience wait for one that hangs."""


class Fetch:
    """One fetch: what it asks for, what it reads, and what it answers."""

    __slots__ = (
        "_api",
        "_opens_session",
        "_session_epoch",
        "context",
        "limits",
        "session",
        "targets",
    )

    def __init__(
        self,
        api: "FetchApi",
        context: RequestContext,
        limits: FetchLimits,
        targets: dict[TargetKey, FetchTarget],
        session: FetchSession | None = None,
        *,
        opens_session: bool = False,
    ) -> None:
        self._api = api
        self.context = context
        self.limits = limits
        self.targets = targets
        self.session = session
        """The session that the request continues."""
        self._session_epoch = 0 if session is None else session.epoch
        self._opens_session = opens_session

    def is_enough(self, reading: Reading) -> bool:
        """Return whether the answer should leave now."""
        if reading.waits_for_disk:
            return False
        return (
            reading.byte_count >= self.limits.bytes_min
            or reading.is_urgent
            or (reading.readable_count == 0 and len(reading.results) == len(self.targets))
        )

    def read(self) -> Reading:
        """Read every partition that may have news, within the limits."""
        reading = Reading()
        self.read_some(reading, self._due())
        return reading

    def _due(self) -> Iterable[FetchTarget]:
        return self.targets.values() if self.session is None else self.session.to_look_at()

    def read_in_steps(self) -> Steps[Reading]:
        """Read and note positions, some partitions in a step."""
        reading = Reading()
        due = list(self._due())
        for at in range(0, len(due), STEP_COST):
            self.read_some(reading, due[at : at + STEP_COST])
            self.note_positions(reading, since=at)
            yield
        return reading

    def read_some(self, reading: Reading, due: Iterable[FetchTarget]) -> None:
        """Read these partitions, within what the reading before them has left."""
        limits = self.limits
        api = self._api
        left = limits.bytes_max - reading.byte_count
        is_first = not reading.byte_count
        readers = api.cold_reads.readers
        permissions = None if limits.is_from_follower else self.context.permissions
        readable = None if permissions is None else permissions.allowed_before(READ_TOPIC)
        quota = api.replication_quota
        is_limited = limits.is_from_follower and quota.is_limited
        is_exceeded = is_limited and quota.is_exceeded()
        piece_bytes = quota.piece_bytes if is_limited and not is_exceeded else 0
        for target in due:
            try:
                partition = target.partition
                if partition is None or partition.is_removed:
                    partition = api.resolve(target, limits, permissions)
                if readable is not None and partition.topic not in readable:
                    assert permissions is not None
                    check_readable(permissions, partition.topic)
                is_throttled = is_limited and may_be_held_back(partition, limits.replica_id)
                is_held = is_throttled and is_exceeded
                bytes_max = min(target.partition_bytes_max, left)
                if is_throttled:
                    bytes_max = min(bytes_max, piece_bytes - reading.throttled_byte_count)
                data = read_partition(
                    partition,
                    target,
                    limits,
                    bytes_max=max(0, bytes_max),
                    is_first=is_first and not is_held,
                )
                if is_throttled and data.records is not None:
                    reading.throttled_byte_count += len(data.records)
                reading.is_throttled |= is_held
                reading.readable_count += 1
                reading.is_urgent |= data.diverging_epoch.epoch >= 0
            except NotCachedError as missing:
                assert partition is not None
                if api.cold_reads.bring_in(partition, missing):
                    self.read_some(reading, (target,))
                    left = limits.bytes_max - reading.byte_count
                    is_first = not reading.byte_count
                    continue
                data = unread(partition, target)
                reading.readable_count += 1
                reading.is_cold = True
            except RefusedError as error:
                data = refused(target, error.code)
                reading.is_urgent |= error.code not in PATIENT
            except CorruptDataError as damage:
                assert partition is not None
                partition.damage = str(damage)
                data = refused(target, ErrorCode.CORRUPT_MESSAGE)
                reading.is_urgent = True
            size = len(data.records) if data.records is not None else 0
            if size:
                if readers and partition is not None and isinstance(data.records, FileSlice):
                    api.cold_reads.note_read(partition, data.records)
                is_first = False
                left -= size
                reading.byte_count += size
            reading.results.append((target, data))

    def note_positions(self, reading: Reading, since: int = 0) -> None:
        """Have each partition that was read note where the follower's log begins and ends.

        What a request says is noted once: when a parked fetch is read again the follower may long
        have said more.  A log that parts from ours does not end where its fetch says.
        """
        limits = self.limits
        if not limits.is_from_follower:
            return
        with self._api.one_event:
            for at, (target, data) in enumerate(reading.results[since:], since):
                is_asked, target.is_asked = target.is_asked, False
                partition = target.partition
                if data.error_code or data.diverging_epoch.epoch >= 0 or partition is None:
                    continue
                if is_asked or self._is_taken_back(partition, target):
                    try:
                        self._note_position(partition, target)
                    except RefusedError as error:
                        reading.refuse(at, error.code)
                        continue
                    data.high_watermark = partition.high_watermark
                reading.is_urgent |= (
                    target.replica_high_watermark < data.high_watermark
                    or 0 <= target.told_log_start_offset < data.log_start_offset
                )

    def _note_position(self, partition: Partition, target: FetchTarget) -> None:
        limits = self.limits
        partition.on_follower_fetch(
            NodeId(limits.replica_id),
            end_offset=Offset(target.fetch_offset),
            log_start_offset=Offset(target.log_start_offset),
            broker_epoch=limits.replica_epoch,
            now_ms=self.context.arrived_ms,
        )

    def _is_taken_back(self, partition: Partition, target: FetchTarget) -> bool:
        """Return whether less is known of the follower than this fetch, which waits, said of it."""
        known = partition.followers.get(NodeId(self.limits.replica_id))
        return known is not None and known.end_offset < target.fetch_offset

    def answer(self, reading: Reading) -> FetchResponse:
        """Make the response, and the session remember what it tells."""
        results = reading.results
        session = self.session
        session_id = NO_SESSION
        if (throttled := self._throttled(reading)) is not None:
            return throttled
        if session is not None:
            if session.epoch != self._session_epoch:
                # Another request of the session overtook this one while it waited.
                return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            session_id = session.session_id
            self._settle(session, results)
            results = [result for result in results if result[0].has_news(result[1])]
        elif self._opens_session:
            session_id = self._open_session(results)
        return self._api.response_of(self.context, self.limits, results, session_id)

    def _throttled(self, reading: Reading) -> FetchResponse | None:
        """Charge the client for the records read; above its quota return an answer without them."""
        charge, slot = self.context.slot.charge, self.context.slot
        if charge is None or charge.may_give(reading.byte_count, slot):
            return None
        return FetchResponse(
            session_id=NO_SESSION if self.session is None else self.session.session_id
        )

    def _open_session(self, results: list[tuple[FetchTarget, PartitionData]]) -> int:
        for target, data in results:
            target.has_news(data)
        session = self._api.open_session(self.targets, self.limits, self.context.arrived_ms)
        if session is None:
            return NO_SESSION
        if self.context.permissions is not None:
            session.permissions_version = self.context.permissions.version
        self._settle(session, results)
        return session.session_id

    def answered_in_steps(self, reading: Reading | None = None) -> Steps[FetchResponse]:
        """Read, unless that was done, and make the response, some partitions in a step."""
        if reading is None:
            reading = yield from self.read_in_steps()
        session = self.session
        session_id = NO_SESSION
        if (throttled := self._throttled(reading)) is not None:
            return throttled
        if self._opens_session:
            session_id = self._open_session(reading.results)
            yield
        elif session is not None:
            session_id = session.session_id
        response = FetchResponse()
        for at in range(0, len(reading.results), STEP_COST):
            if session is not None and session.epoch != self._session_epoch:
                return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            results = reading.results[at : at + STEP_COST]
            if session is not None:
                self._settle(session, results)
                results = [result for result in results if result[0].has_news(result[1])]
            piece = self._api.response_of(self.context, self.limits, results, session_id)
            _put_behind(response, piece)
            yield
        response.session_id = session_id
        return response

    def _settle(
        self, session: FetchSession, results: list[tuple[FetchTarget, PartitionData]]
    ) -> None:
        for target, data in results:
            session.settle(
                target,
                had_records=bool(data.records),
                has_more=leaves_something(target, data, self.limits),
                has_failed=data.error_code != 0,
            )


class FetchApi:
    """Serves Fetch 4-18."""

    def __init__(
        self,
        *,
        table: PartitionTable,
        purgatory: Purgatory,
        sessions: FetchSessionCache,
        fetch_bytes_max: int,
        bring_in: BringIn,
        replication_quota: ReplicationQuota,
        times: RequestTimes | None = None,
    ) -> None:
        self.table = table
        self.replication_quota = replication_quota
        """What this broker, as a leader, may give throttled replicas."""
        self.cold_reads = ColdReads(bring_in, purgatory.wake)
        self.one_event = purgatory.one_event
        self._purgatory = purgatory
        self.sessions = sessions
        self._times = times
        self.fetch_bytes_max = fetch_bytes_max
        """The most that an answer has of records, but for a batch that is larger."""
        sessions.let_go = self._let_go

    def handle(self, context: RequestContext, request: FetchRequest) -> FetchResponse | None:
        """Read; answer when that is enough or the client does not wait, else wait."""
        limits = self._limits_of(context, request)
        if limits.is_from_follower:
            if self._times is not None:
                context.slot.times = self._times.of_followers(context.header.api_version)
            if (code := self._follower_refusal(context, limits)) is not ErrorCode.NONE:
                return self._refuse_follower(context, request, limits, code)
        try:
            fetch = self._begin(context, request, limits)
        except RefusedError as error:
            return FetchResponse(error_code=error.code)
        reading = fetch.read()
        fetch.note_positions(reading)
        if fetch.is_enough(reading) or _is_impatient(request, reading):
            return fetch.answer(reading)
        self._park(request, fetch, reading)
        return None

    def _limits_of(self, context: RequestContext, request: FetchRequest) -> FetchLimits:
        """Return the limits of a fetch; a follower's is charged to no client."""
        limits = FetchLimits(request, context.header.api_version, self.fetch_bytes_max)
        charge = context.slot.charge
        if charge is not None:
            if limits.is_from_follower:
                charge.is_exempt = True
            else:
                limits.bytes_max = charge.fetch_bytes_max(limits.bytes_max)
                limits.bytes_min = min(limits.bytes_min, limits.bytes_max)
                limits.whole_batches = True
        return limits

    def _park(self, request: FetchRequest, fetch: Fetch, reading: Reading) -> None:
        entry, context = waiting(fetch, reading), fetch.context
        wait_ms = request.max_wait_ms
        if reading.waits_for_disk and wait_ms < DISK_WAIT_MS:
            wait_ms = DISK_WAIT_MS
            entry.waits_for_disk = True
        if reading.is_throttled:  # it looks again when the rate has fallen
            wait_ms = min(wait_ms, self.replication_quota.delay_ms())
        self._purgatory.watch(entry.keys, entry, context.arrived_ms + wait_ms)
        context.slot.on_abandoned = lambda: self._purgatory.cancel(entry)

    def handle_large(self, context: RequestContext, request: FetchRequest) -> Answer:
        """Serve a request that names very many partitions, in steps."""
        limits = self._limits_of(context, request)
        code = self._follower_refusal(context, limits)
        if code is not ErrorCode.NONE:
            stranger = Fetch(self, context, limits, {})
            targets = yield from _targets_in_steps(request, limits.uses_topic_ids)
            reading = Reading()
            for target in targets.values():
                data = refused(target, code)
                reading.results.append((target, data))
            return (yield from stranger.answered_in_steps(reading))
        try:
            fetch = yield from self._begin_large(context, request, limits)
        except RefusedError as error:
            return FetchResponse(error_code=error.code)
        reading = yield from fetch.read_in_steps()
        if fetch.is_enough(reading) or _is_impatient(request, reading):
            return (yield from fetch.answered_in_steps(reading))
        self._park(request, fetch, reading)
        return None

    def _begin_large(
        self, context: RequestContext, request: FetchRequest, limits: FetchLimits
    ) -> Steps[Fetch]:
        """Do as `_begin`, with the partitions that are named taken in some in a step."""
        if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            asked, request.topics = request.topics, []
            self.sessions.check_room(request, asked)
            fetch = self._begin(context, request, limits)
            session = fetch.session
            if session is None:
                raise RefusedError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            pace = StepPace()
            request.topics = asked
            for named in asked_partitions(request, limits.uses_topic_ids):
                session.ask(*named)
                if pace.is_due():
                    yield
            self.sessions.touch(session, context.arrived_ms)
            return fetch
        if request.session_id != NO_SESSION:
            self.sessions.close(request.session_id)
        targets = yield from _targets_in_steps(request, limits.uses_topic_ids)
        opens_session = request.session_epoch == INITIAL_EPOCH
        return Fetch(self, context, limits, targets, opens_session=opens_session)

    def _follower_refusal(self, context: RequestContext, limits: FetchLimits) -> ErrorCode:
        """Return why a follower is not served at all; NONE for one that is, and for a consumer."""
        if not limits.is_from_follower:
            return ErrorCode.NONE
        operation, cluster = AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER
        if not may(context.permissions, operation, cluster, CLUSTER_NAME):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED  # as Kafka says it
        if not self.is_registered(limits):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    def is_registered(self, limits: FetchLimits) -> bool:
        """Return whether a broker of that id and epoch is in the metadata image (KIP-903).

        Only such a follower is believed: an earlier life may have lost what it had, and an epoch
        above the registered one is a forgery, or a new life that the image is about to bring.
        """
        broker = self.table.image.brokers.get(NodeId(limits.replica_id))
        return broker is not None and broker.epoch == limits.replica_epoch

    def _refuse_follower(
        self, context: RequestContext, request: FetchRequest, limits: FetchLimits, code: ErrorCode
    ) -> FetchResponse:
        """Refuse each partition that the request names; no session is looked at or changed."""
        targets = targets_of(request, limits.uses_topic_ids)
        results = [(target, refused(target, code)) for target in targets.values()]
        return self.response_of(context, limits, results, NO_SESSION)

    def _begin(self, context: RequestContext, request: FetchRequest, limits: FetchLimits) -> Fetch:
        epoch = request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            # A full request ends the session it names.
            if request.session_id != NO_SESSION:
                self.sessions.close(request.session_id)
            targets = targets_of(request, limits.uses_topic_ids)
            opens_session = epoch == INITIAL_EPOCH and len(targets) > 0
            return Fetch(self, context, limits, targets, opens_session=opens_session)
        session = self.sessions.continue_session(
            request, replica_id=limits.replica_id, uses_topic_ids=limits.uses_topic_ids
        )
        if not session.targets:
            self.sessions.close(session.session_id)
            return Fetch(self, context, limits, {})
        self.sessions.touch(session, context.arrived_ms)
        if context.permissions is not None:
            session.check_again(context.permissions.version)
        return Fetch(self, context, limits, session.targets, session)

    def open_session(
        self, targets: dict[TargetKey, FetchTarget], limits: FetchLimits, now_ms: int
    ) -> FetchSession | None:
        """Open a session over what a full request asked; None when no slot is free."""
        session = self.sessions.open(
            targets,
            replica_id=limits.replica_id,
            uses_topic_ids=limits.uses_topic_ids,
            now_ms=now_ms,
        )
        if session is not None:
            session.on_due = partial(self._purgatory.wake, session)
            for target in targets.values():
                self._listen(target)
        return session

    def resolve(
        self, target: FetchTarget, limits: FetchLimits, permissions: Permissions | None
    ) -> Partition:
        """Find a target's partition, and hear of its events; refuse when it is not here.

        Of a topic that the client may not read it is not told whether it is here.
        """
        self._let_go(target)
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

    def _let_go(self, target: FetchTarget) -> None:
        partition = target.partition
        if partition is not None:
            self._purgatory.unlisten(partition.high_watermark_key, target)
            self._purgatory.unlisten(partition.end_offset_key, target)

    def response_of(
        self,
        context: RequestContext,
        limits: FetchLimits,
        results: list[tuple[FetchTarget, PartitionData]],
        session_id: int,
    ) -> FetchResponse:
        """Group the partitions by topic, and say who leads those that we do not."""
        topics: dict[object, FetchableTopicResponse] = {}
        leaders: set[int] = set()
        if limits.is_from_follower and self.replication_quota.is_limited:
            self.replication_quota.record(throttled_bytes(results))
        for target, data in results:
            if target.partition is not None:
                target.partition.traffic.note_fetched(
                    0 if data.records is None else len(data.records),
                    is_from_follower=limits.is_from_follower,
                    is_refused=data.error_code != 0,
                )
            if data.error_code and self._times is not None:
                self._times.note_refusal(FetchRequest.API_KEY, data.error_code)
            if data.error_code and limits.wants_hints and data.error_code in HINTED:
                leader_id, leader_epoch = self.table.current_leader(
                    target.topic, target.topic_id, target.index
                )
                data.current_leader = LeaderIdAndEpoch(
                    leader_id=leader_id, leader_epoch=leader_epoch
                )
                leaders.add(leader_id)
            name = target.key[0]
            topic = topics.get(name)
            if topic is None:
                topics[name] = FetchableTopicResponse(
                    topic=target.topic, topic_id=target.topic_id, partitions=[data]
                )
            else:
                topic.partitions.append(data)
        response = FetchResponse(session_id=session_id, responses=list(topics.values()))
        if leaders:
            response.node_endpoints = [
                NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
                for node_id, host, port, rack in endpoints_of(
                    self.table.image, leaders, context.peer.listener_name
                )
            ]
        return response


def _is_impatient(request: FetchRequest, reading: Reading) -> bool:
    """Return whether the client wants what there is, and the disk is not what it waits for."""
    return request.max_wait_ms <= 0 and not reading.waits_for_disk


def _targets_in_steps(
    request: FetchRequest, uses_topic_ids: bool
) -> Steps[dict[TargetKey, FetchTarget]]:
    pace = StepPace()
    targets: dict[TargetKey, FetchTarget] = {}
    for key, topic, topic_id, asked in asked_partitions(request, uses_topic_ids):
        targets[key] = FetchTarget(topic, topic_id, asked, key)
        if pace.is_due():
            yield
    return targets


def _put_behind(response: FetchResponse, piece: FetchResponse) -> None:
    """Add a piece to a response; a topic that goes on is one in the answer."""
    topics = piece.responses
    if response.responses and topics:
        last, first = response.responses[-1], topics[0]
        if (last.topic, last.topic_id) == (first.topic, first.topic_id):
            last.partitions += first.partitions
            topics = topics[1:]
    response.responses += topics
    known = {node.node_id for node in response.node_endpoints}
    response.node_endpoints += [node for node in piece.node_endpoints if node.node_id not in known]
