"""Fetches of a single partition: all of it allowed and there.  Pure.

Most fetches of a busy consumer ask for one partition, without a session or as the only one of it,
and are answered at once.  What is served here is written into the frame of its answer, or around a
slice of the log where it is not little, without the objects of a request of any size.  Every other
fetch, and every refusal, is `FetchApi`'s: nothing has been changed when it is left to that, and it
answers each request that is served here in the same bytes.
"""

from struct import Struct
from uuid import UUID

from ottla.broker.logs.fetch import FetchApi
from ottla.broker.logs.fetch_read import READ_COMMITTED, READ_TOPIC, REPLICA_STATE_FROM
from ottla.broker.logs.fetch_session import FINAL_EPOCH, NO_SESSION, FetchSession
from ottla.broker.network.dispatch import Permissions, RequestContext
from ottla.broker.network.response_queue import ResponseSlot
from ottla.broker.replicas.partition import Partition
from ottla.model.errors import RefusedError
from ottla.model.ids import NO_EPOCH, Offset
from ottla.storage.disk_seam import NotCachedError
from ottla.storage.log import Log
from ottla.storage.log_reads import SMALL_READ_BYTES_MAX
from ottla.storage.slice import FileSlice
from ottla.wire.apis import FETCH_TOPIC_IDS_FROM
from ottla.wire.codec_runtime import write_uvarint
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest
from ottla.wire.messages.fetch_response import FetchResponse

_START = ">iixihiB16sBihqqqBi"
"""The frame's length, correlation id, tags; the answer's throttle time, error, session, topics; the
topic's id, partitions; the partition's index, error, high watermark, last stable offset, log start,
aborted transactions, preferred replica.  Counts are compact: one more than what is counted."""

_ANY, _SHORT, _LONG = Struct(_START), Struct(_START + "B"), Struct(_START + "H")
"""Before the compact size of the records, and with one of one byte and of two."""

pack_any, pack_short, pack_long = _ANY.pack, _SHORT.pack, _LONG.pack
LENGTH_BYTES = 4
NO_TAGS_BEHIND = b"\0\0\0"
"""Those of the partition, the topic and the answer."""

SHORT_REST = _SHORT.size - LENGTH_BYTES + len(NO_TAGS_BEHIND)
ANY_REST = _ANY.size - LENGTH_BYTES + len(NO_TAGS_BEHIND)
LONG_REST = _LONG.size - LENGTH_BYTES + len(NO_TAGS_BEHIND)
SHORT_MAX = 126
"""Size of the most records whose compact size is one byte."""

assert SMALL_READ_BYTES_MAX + 1 < 1 << 14, "else a compact size may have three bytes"

ONE, NONE_OF_THEM, NULL = 2, 1, 0
NO_REPLICA = -1

PLACES_MAX = 256
"""Partitions whose place is remembered.  Fewer look some up again, more hold what is gone."""


class Place:
    """Where a topic id and an index lead."""

    __slots__ = ("id_bytes", "index", "partition", "topic_id")

    def __init__(self, topic_id: UUID, index: int, partition: Partition) -> None:
        self.topic_id = topic_id
        self.index = index
        self.partition = partition
        self.id_bytes = topic_id.bytes


class SingleFetches:
    """Serves the fetches of a single partition, and has `FetchApi` serve the rest."""

    def __init__(self, api: FetchApi) -> None:
        self._api = api
        self._table = api.table
        self._bytes_max = api.fetch_bytes_max
        self._places: dict[int, Place] = {}
        """The partition that was asked for last, by the identity of its topic's id: ids are decoded
        to the same object each time."""

    def handle(self, context: RequestContext, request: FetchRequest) -> FetchResponse | None:
        """Answer a fetch."""
        session: FetchSession | None = None
        if request.session_id != NO_SESSION:
            session = self._api.sessions.find_single(request)
            if session is None:
                return self._api.handle(context, request)
        elif request.session_epoch != FINAL_EPOCH:
            return self._api.handle(context, request)
        if not self._serve(context, request, session):
            return self._api.handle(context, request)
        return None

    def _serve(
        self, context: RequestContext, request: FetchRequest, session: FetchSession | None
    ) -> bool:
        """Return whether the fetch has been answered."""
        slot = context.slot
        version = context.header.api_version
        topics = request.topics
        if (
            version < FETCH_TOPIC_IDS_FROM
            or len(topics) != 1
            or len(topics[0].partitions) != 1
            or slot.amend is not None
            or slot.trace is not None
        ):
            return False
        has_state = version >= REPLICA_STATE_FROM
        replica_id = request.replica_state.replica_id if has_state else request.replica_id
        topic = topics[0]
        asked: FetchPartition = topic.partitions[0]
        if replica_id >= 0 or asked.last_fetched_epoch != NO_EPOCH:
            return False
        place = self._places.get(id(topic.topic_id))
        if (
            place is None
            or place.index != asked.partition
            or place.topic_id is not topic.topic_id
            or place.partition.is_removed
        ):
            place = self._look_up(topic.topic_id, asked.partition)
        if place is None:
            return False
        partition = place.partition
        permissions = context.permissions
        if permissions is not None and not _is_readable(permissions, partition.topic):
            return False
        if session is not None and not _is_target(session, partition, permissions):
            return False
        try:
            data = self._read(partition, request, asked, context)
        except (RefusedError, NotCachedError, OSError):
            return False
        log = partition.log
        if data is None or log is None:
            return False
        if session is not None:
            session.note_records(asked, log.high_watermark, log.log_start_offset)
            self._api.sessions.touch(session, context.arrived_ms)
        partition.traffic.note_fetched(size := len(data), is_from_follower=False, is_refused=False)
        aborted = NONE_OF_THEM if request.isolation_level == READ_COMMITTED else NULL
        if isinstance(data, FileSlice):
            _complete(slot, place, request.session_id, log, aborted, data)
            return True
        high, stable, log_start = log.high_watermark, log.last_stable_offset, log.log_start_offset
        correlation_id, session_id = context.header.correlation_id, request.session_id
        throttle_ms = slot.settle_charge()
        # fmt: off
        if size <= SHORT_MAX:
            start = pack_short(
                size + SHORT_REST, correlation_id, throttle_ms, 0, session_id, ONE, place.id_bytes,
                ONE, place.index, 0, high, stable, log_start, aborted, NO_REPLICA, size + 1,
            )
        else:
            start = pack_long(
                size + LONG_REST, correlation_id, throttle_ms, 0, session_id, ONE, place.id_bytes,
                ONE, place.index, 0, high, stable, log_start, aborted, NO_REPLICA,
                (size + 1 & 0x7F | 0x80) << 8 | size + 1 >> 7,
            )
        # fmt: on
        slot.complete_frame(b"".join((start, data, NO_TAGS_BEHIND)))
        return True

    def _read(
        self,
        partition: Partition,
        request: FetchRequest,
        asked: FetchPartition,
        context: RequestContext,
    ) -> bytes | bytearray | FileSlice | None:
        """Return the records, charged; None where they lie further back, the client waits for more
        or its quota may have to be asked for less.

        Raises RefusedError, NotCachedError or OSError if they cannot be had.
        """
        log = partition.leader_log(asked.current_leader_epoch)
        offset = Offset(asked.fetch_offset)
        is_committed = request.isolation_level == READ_COMMITTED
        bound = log.last_stable_offset if is_committed else log.high_watermark
        if not log.log_start_offset <= offset < bound:
            return None
        if is_committed and log.has_aborted_lately:
            return None
        bytes_max = min(asked.partition_max_bytes, request.max_bytes, self._bytes_max)
        charge = context.slot.charge
        data = log.read_single(
            offset,
            bytes_max=bytes_max,
            end_offset=bound,
            now_ms=context.arrived_ms,
            whole_batches=charge is not None,
        )
        if data is None:
            return None
        bytes_min = min(request.min_bytes, self._bytes_max)
        if len(data) < bytes_min and request.max_wait_ms > 0:
            return None
        cold_reads = self._api.cold_reads
        readers = cold_reads.readers
        if readers and not isinstance(data, FileSlice) and log.newest_path in readers:
            return None
        if charge is not None and not charge.may_give_all(len(data)):
            return None
        if readers and isinstance(data, FileSlice):
            cold_reads.note_read(partition, data)
        return data

    def _look_up(self, topic_id: UUID, index: int) -> Place | None:
        """Return the place of a partition and remember it; None where it is not here."""
        partitions = self._table.by_id.get(topic_id)
        partition = None if partitions is None else partitions.get(index)
        if partition is None:
            return None
        if len(self._places) >= PLACES_MAX:
            self._places.clear()
        place = self._places[id(topic_id)] = Place(topic_id, index, partition)
        return place


def _complete(
    slot: ResponseSlot, place: Place, session_id: int, log: Log, aborted: int, data: FileSlice
) -> None:
    """Answer with a slice of the log."""
    size = len(data)
    compact_size = write_uvarint(size + 1)
    # fmt: off
    start = pack_any(
        ANY_REST + len(compact_size) + size, slot.header.correlation_id, slot.settle_charge(), 0,
        session_id, ONE, place.id_bytes, ONE, place.index, 0, log.high_watermark,
        log.last_stable_offset, log.log_start_offset, aborted, NO_REPLICA,
    )
    # fmt: on
    slot.complete_pieces([start + compact_size, data, NO_TAGS_BEHIND])


def _is_target(
    session: FetchSession, partition: Partition, permissions: Permissions | None
) -> bool:
    """Return whether a partition is all that a session has to look at."""
    if permissions is not None and permissions.version != session.permissions_version:
        return False
    return next(iter(session.targets.values())).partition is partition


def _is_readable(permissions: Permissions, topic: str) -> bool:
    """Return whether the client was allowed to read a topic when it was asked last."""
    return topic in permissions.allowed_before(READ_TOPIC)
