"""Describes the committed entries of the metadata log as text. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

from ottla.metadata.image import MetadataImage
from ottla.metadata.record_words import topic_id_text, words_of
from ottla.metadata.records import decode_record
from ottla.metadata.topics_fold import read_uuid
from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, Offset
from ottla.raft.control_records import control_type, read_leader_change, read_voters
from ottla.wire.batch import batches
from ottla.wire.batch_builder import ControlType
from ottla.wire.records import Record as LogRecord
from ottla.wire.records import scan

NO_OP = "no_op"
FIRST = Offset(0)


class LogChange(NamedTuple):
    """Entry of the metadata log, described as text."""

    offset: Offset
    epoch: Epoch
    timestamp_ms: int
    kind: str
    """Type of the entry: the type of its metadata record, as in `metadata.proto`, or the type of
    its control record."""
    text: str


def changes_in(
    data: bytes, image: MetadataImage, *, start_offset: Offset = FIRST
) -> Iterator[LogChange]:
    """Yield the metadata log's entries in `data`, which consists of whole batches, from
    `start_offset` on. Records that change nothing are omitted.

    The names of topics are taken from `image`.
    """

    def topic_name(topic_id: bytes) -> str:
        try:
            topic = image.topics.get(read_uuid(topic_id))
        except CorruptDataError:
            topic = None
        return topic_id_text(topic_id) if topic is None else topic.name

    for at, header in batches(memoryview(data)):
        for record in scan(data, at, header):
            if record.offset < start_offset:
                continue
            if header.is_control:
                kind, text = _control(record)
            else:
                body = decode_record(record.value or b"")
                kind, text = body.WhichOneof("record") or "", words_of(body, topic_name)
            if kind != NO_OP:
                yield LogChange(
                    Offset(record.offset),
                    Epoch(header.partition_leader_epoch),
                    header.max_timestamp,
                    kind,
                    text,
                )


def end_offset_of(data: bytes) -> Offset:
    """Return the offset after the last entry of the metadata log in `data`, which consists of whole
    batches. Returns the first possible offset if there are no batches."""
    return max((header.end_offset for _, header in batches(memoryview(data))), default=FIRST)


def _control(record: LogRecord) -> tuple[str, str]:
    kind = control_type(record.key)
    value = record.value or b""
    if kind == ControlType.LEADER_CHANGE:
        return "leader_change", f"controller {read_leader_change(value).leader_id} leads"
    if kind == ControlType.KRAFT_VOTERS:
        ids = ", ".join(map(str, read_voters(value).ids))
        return "voters", f"the voters are {ids}"
    return "control", f"control record of type {kind}"
