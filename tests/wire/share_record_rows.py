"""Bytes of the records of share groups, written out by hand; rows as in `test_codec_bytes`."""

from uuid import UUID

from ottla.wire.apis import message_module
from ottla.wire.codec_types import Message

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")

_IDS = "02 00112233445566778899aabbccddeeff"

member_key = message_module("ShareGroupMemberMetadataKey")
member = message_module("ShareGroupMemberMetadataValue")
group_key = message_module("ShareGroupMetadataKey")
group = message_module("ShareGroupMetadataValue")
target_key = message_module("ShareGroupTargetAssignmentMetadataKey")
target = message_module("ShareGroupTargetAssignmentMetadataValue")
target_member_key = message_module("ShareGroupTargetAssignmentMemberKey")
target_member = message_module("ShareGroupTargetAssignmentMemberValue")
current_key = message_module("ShareGroupCurrentMemberAssignmentKey")
current = message_module("ShareGroupCurrentMemberAssignmentValue")
partitions_key = message_module("ShareGroupStatePartitionMetadataKey")
partitions = message_module("ShareGroupStatePartitionMetadataValue")
snapshot_key = message_module("ShareSnapshotKey")
snapshot = message_module("ShareSnapshotValue")
update_key = message_module("ShareUpdateKey")
update = message_module("ShareUpdateValue")

SHARE_ROWS: list[tuple[Message, int, str]] = [
    (member_key.ShareGroupMemberMetadataKey(group_id="g1", member_id="m"), 0, "0002 6731 0001 6d"),
    (
        member.ShareGroupMemberMetadataValue(
            rack_id=None, client_id="c", client_host="/h", subscribed_topic_names=["t"]
        ),
        0,
        "00 02 63 03 2f68 02 02 74 00",
    ),
    (group_key.ShareGroupMetadataKey(group_id="g1"), 0, "0002 6731"),
    (
        group.ShareGroupMetadataValue(epoch=5, metadata_hash=258),
        0,
        "00000005 0000000000000102 00",
    ),
    (target_key.ShareGroupTargetAssignmentMetadataKey(group_id="g1"), 0, "0002 6731"),
    (
        target.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=5, assignment_timestamp=9),
        0,
        "00000005  01 00 08 0000000000000009",
    ),
    (
        target_member_key.ShareGroupTargetAssignmentMemberKey(group_id="g1", member_id="m"),
        0,
        "0002 6731 0001 6d",
    ),
    (
        target_member.ShareGroupTargetAssignmentMemberValue(
            topic_partitions=[target_member.TopicPartition(topic_id=TOPIC_ID, partitions=[1, 2])]
        ),
        0,
        f"{_IDS} 03 00000001 00000002 00 00",
    ),
    (
        current_key.ShareGroupCurrentMemberAssignmentKey(group_id="g1", member_id="m"),
        0,
        "0002 6731 0001 6d",
    ),
    (
        current.ShareGroupCurrentMemberAssignmentValue(
            member_epoch=5,
            previous_member_epoch=4,
            state=1,
            assigned_partitions=[current.TopicPartitions(topic_id=TOPIC_ID, partitions=[1])],
        ),
        0,
        f"00000005 00000004 01 {_IDS} 02 00000001 00 00",
    ),
    (partitions_key.ShareGroupStatePartitionMetadataKey(group_id="g1"), 0, "0002 6731"),
    (
        partitions.ShareGroupStatePartitionMetadataValue(
            initializing_topics=[
                partitions.TopicPartitionsInfo(topic_id=TOPIC_ID, topic_name="t", partitions=[1])
            ],
            initialized_topics=[
                partitions.TopicPartitionsInfo(topic_id=TOPIC_ID, topic_name="t", partitions=[0])
            ],
            deleting_topics=[partitions.TopicInfo(topic_id=TOPIC_ID, topic_name="u")],
        ),
        0,
        f"{_IDS} 02 74 02 00000001 00  {_IDS} 02 74 02 00000000 00  {_IDS} 02 75 00  00",
    ),
    (
        snapshot_key.ShareSnapshotKey(group_id="g1", topic_id=TOPIC_ID, partition=3),
        0,
        "0002 6731 00112233445566778899aabbccddeeff 00000003",
    ),
    (
        snapshot.ShareSnapshotValue(
            snapshot_epoch=1,
            state_epoch=2,
            leader_epoch=3,
            start_offset=4,
            delivery_complete_count=5,
            create_timestamp=6,
            write_timestamp=7,
            state_batches=[
                snapshot.StateBatch(
                    first_offset=8, last_offset=9, delivery_state=2, delivery_count=1
                )
            ],
        ),
        0,
        "00000001 00000002 00000003 0000000000000004 0000000000000006 0000000000000007"
        "  02 0000000000000008 0000000000000009 02 0001 00  01 00 04 00000005",
    ),
    (
        update_key.ShareUpdateKey(group_id="g1", topic_id=TOPIC_ID, partition=3),
        0,
        "0002 6731 00112233445566778899aabbccddeeff 00000003",
    ),
    (
        update.ShareUpdateValue(
            snapshot_epoch=1,
            leader_epoch=3,
            start_offset=-1,
            state_batches=[
                update.StateBatch(first_offset=8, last_offset=9, delivery_state=0, delivery_count=1)
            ],
        ),
        0,
        "00000001 00000003 ffffffffffffffff  02 0000000000000008 0000000000000009 00 0001 00  00",
    ),
]
"""Rows of records that the test library of schemas lacks."""
