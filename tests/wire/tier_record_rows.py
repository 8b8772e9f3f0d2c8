"""Records of copied segments, with their bytes written out by hand."""

from uuid import UUID

from ottla.wire.apis import message_module
from ottla.wire.codec_types import Message

segment = message_module("RemoteLogSegmentMetadataRecord")
update = message_module("RemoteLogSegmentMetadataUpdateRecord")

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
SEGMENT_ID = UUID("ffeeddcc-bbaa-9988-7766-554433221100")
ID_BYTES = "02 74 00112233445566778899aabbccddeeff 00000003 00 ffeeddccbbaa99887766554433221100 00 "

TIER_ROWS: list[tuple[Message, int, str]] = [
    (
        segment.RemoteLogSegmentMetadataRecord(
            remote_log_segment_id=segment.RemoteLogSegmentIdEntry(
                topic_id_partition=segment.TopicIdPartitionEntry(
                    name="t", id=TOPIC_ID, partition=3
                ),
                id=SEGMENT_ID,
            ),
            start_offset=5,
            end_offset=9,
            broker_id=1,
            max_timestamp_ms=257,
            event_timestamp_ms=258,
            segment_leader_epochs=[segment.SegmentLeaderEpochEntry(leader_epoch=4, offset=5)],
            segment_size_in_bytes=512,
            custom_metadata=None,
            remote_log_segment_state=0,
            txn_index_empty=True,
        ),
        0,
        ID_BYTES + "0000000000000005 0000000000000009 00000001 0000000000000101 0000000000000102 "
        "02 00000004 0000000000000005 00 00000200 00 00 01 00 01 01",
    ),
    (
        update.RemoteLogSegmentMetadataUpdateRecord(
            remote_log_segment_id=update.RemoteLogSegmentIdEntry(
                topic_id_partition=update.TopicIdPartitionEntry(name="t", id=TOPIC_ID, partition=3),
                id=SEGMENT_ID,
            ),
            broker_id=1,
            event_timestamp_ms=258,
            custom_metadata=b"\x07",
            remote_log_segment_state=1,
        ),
        0,
        ID_BYTES + "00000001 0000000000000102 02 07 01 00",
    ),
]
