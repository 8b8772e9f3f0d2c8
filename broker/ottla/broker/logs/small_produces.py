"""Produces of one small batch to one partition, served from the bytes of their frame.  Pure.

Most producers send one batch a request, and nothing has to be waited for where a partition has no
followers or its leader alone acknowledges.  What is served here is neither decoded nor encoded: the
topic and the partition stand in the request in the bytes in which the answer repeats them.  Every
other produce, and every refusal, is `ProduceApi`'s: the log is as it was when it is left to that.
"""

from struct import Struct
from typing import Final
from uuid import UUID

from ottla.broker.logs.produce import ACKS_LEADER, ProduceApi
from ottla.broker.network.dispatch import RequestContext
from ottla.broker.replicas.partition import ACKS_ALL, Partition
from ottla.model.errors import RefusedError
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.storage.validate import RecordsToInspectError
from ottla.wire.apis import PRODUCE_TOPIC_IDS_FROM
from ottla.wire.batch import TRANSACTIONAL_FLAG

FLEXIBLE_FROM: Final = 9
"""The first version whose lengths are compact, and whose answer has all that is written here."""

ONE: Final = 2
"""A compact count of one; a compact size is one more than what is counted, too."""

NO_TRANSACTION: Final = 0
LONG_SIZE: Final = 0x80
"""The bit that says that a compact size goes on in the next byte."""

ID_PLACE_BYTES: Final = 1 + 16 + 1 + 4
"""Of one topic's id and one partition's index, with their counts."""
NAME_PLACE_BYTES: Final = 1 + 1 + 4
"""Of the same with a name, besides what the name's compact size says."""

_read_start: Final = Struct(">BhixB").unpack_from
"""Transactional id, acks, timeout, topics (passed over), size of the topic's name."""
START_BYTES: Final = 1 + 2 + 4
_read_batch: Final = Struct(">q13xh").unpack_from
"""Base offset and attributes of a batch."""
_put_base_offset: Final = Struct(">q").pack_into

_read_id_place: Final = Struct(">B16sBi").unpack
_read_count_and_index: Final = Struct(">Bi").unpack_from

NO_TAGS_BEHIND: Final = b"\0\0\0"
"""Those of the partition, the topic and the request."""
REST_BYTES_MIN: Final = 1 + BATCH_HEADER_BYTES + len(NO_TAGS_BEHIND)

_answer_head: Final = Struct(">iix").pack
_answer_rest: Final = Struct(">hqqqBBBBiB").pack
"""Error, base offset, append time, log start, record errors, message, tags of the partition and the
topic, throttle time, tags."""
ANSWER_BYTES: Final = 4 + 1 + Struct(">hqqqBBBBiB").size
"""Size of an answer besides the place in it, without its length."""
NONE_OF_THEM: Final = 1

PLACES_MAX: Final = 256
"""Places that are remembered.  Fewer look some up again, more hold what is gone."""


class SmallProduces:
    """Serves the produces of one small batch, and leaves the rest to `ProduceApi`."""

    def __init__(self, api: ProduceApi) -> None:
        self._table = api.table
        self._clock = api.clock
        self._by_id: dict[bytes, Partition] = {}
        self._by_name: dict[bytes, Partition] = {}
        """Partitions by the bytes that lead to them."""

    def serve(self, context: RequestContext, frame: memoryview) -> bool:
        """Return whether the request has been served; it has no trace or amendment."""
        header = context.header
        version, at = header.api_version, header.body_at
        size = len(frame)
        if version < FLEXIBLE_FROM or size < at + START_BYTES + ID_PLACE_BYTES:
            return False
        transactional_id, acks, _timeout_ms, name_size = _read_start(frame, at)
        at += START_BYTES
        is_by_id = version >= PRODUCE_TOPIC_IDS_FROM
        end = at + (ID_PLACE_BYTES if is_by_id else NAME_PLACE_BYTES + name_size)
        place = bytes(frame[at:end])
        places = self._by_id if is_by_id else self._by_name
        partition = places.get(place)
        if partition is None or partition.is_removed:
            partition = self._look_up(place, is_by_id)
        if (
            partition is None
            or transactional_id != NO_TRANSACTION
            or size < end + REST_BYTES_MIN
            or not (acks == ACKS_LEADER or (acks == ACKS_ALL and not partition.followers))
            or partition.is_flush_awaited
            or partition.inspects_records
        ):
            return False
        batch_at = end + 1
        batch_size = frame[end] - 1
        if frame[end] & LONG_SIZE:
            if frame[batch_at] & LONG_SIZE:
                return False
            batch_size = (frame[end] ^ LONG_SIZE | frame[batch_at] << 7) - 1
            batch_at += 1
        batch_end = batch_at + batch_size
        if (
            batch_size < BATCH_HEADER_BYTES
            or size != batch_end + len(NO_TAGS_BEHIND)
            or bytes(frame[batch_end:]) != NO_TAGS_BEHIND
        ):
            return False
        return self._append(context, partition, acks, frame[batch_at:batch_end], place)

    def _append(
        self,
        context: RequestContext,
        partition: Partition,
        acks: int,
        batch: memoryview,
        place: bytes,
    ) -> bool:
        base_offset, attributes = _read_batch(batch)
        if base_offset or attributes & TRANSACTIONAL_FLAG:
            return False
        try:
            info = partition.append(
                batch, acks=acks, now_ms=self._clock.wall_ms(), mono_ms=context.arrived_ms
            )
        except (RefusedError, RecordsToInspectError):
            if not batch.readonly:
                _put_base_offset(batch, 0, 0)  # the log may have set its own
            return False
        base_offset = info.base_offset
        traffic = partition.traffic
        traffic.produce_requests += 1
        traffic.bytes_in += len(batch)
        traffic.messages_in += info.end_offset - base_offset
        slot = context.slot
        head = _answer_head(ANSWER_BYTES + len(place), context.header.correlation_id)
        # fmt: off
        rest = _answer_rest(
            0, base_offset, info.log_append_time_ms, info.log_start_offset, NONE_OF_THEM,
            0, 0, 0, slot.settle_charge(), 0,
        )
        # fmt: on
        slot.complete_frame(head + place + rest)
        return True

    def _look_up(self, place: bytes, is_by_id: bool) -> Partition | None:
        """Return the partition to which these bytes lead, and remember it; None without one."""
        if is_by_id:
            topics, topic_id, count, index = _read_id_place(place)
            partitions = self._table.by_id.get(UUID(bytes=topic_id))
            places = self._by_id
        else:
            topics, name_size = place[0], place[1]
            index_at = len(place) - 4
            if name_size & LONG_SIZE or len(place) != NAME_PLACE_BYTES + name_size or not name_size:
                return None
            count, index = _read_count_and_index(place, index_at - 1)
            try:
                partitions = self._table.by_name.get(place[2 : index_at - 1].decode())
            except UnicodeDecodeError:
                return None
            places = self._by_name
        if topics != ONE or count != ONE or partitions is None:
            return None
        partition = partitions.get(index)
        if partition is not None:
            if len(places) >= PLACES_MAX:
                places.clear()
            places[place] = partition
        return partition
