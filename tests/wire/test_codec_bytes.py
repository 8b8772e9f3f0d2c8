"""Bytes written out by hand: those that kio cannot check, and a few well-known ones.

Each row is a message, its version, and its bytes as hexadecimal words, one field a word; the
comment of a line names it.
"""

from uuid import UUID

import pytest
from kio.schema.index import schema_name_map

from ottla.wire import codec
from ottla.wire.apis import message_module
from ottla.wire.codec_examples import all_messages
from ottla.wire.codec_types import Message
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.wire.messages.clean_logs_request import CleanLogsRequest, TopicToClean
from ottla.wire.messages.clean_logs_response import (
    CleanLogsPartitionResult,
    CleanLogsResponse,
    CleanLogsTopicResult,
)
from ottla.wire.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from ottla.wire.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from ottla.wire.messages.consumer_group_current_member_assignment_value import (
    TopicPartitions as CurrentPartitions,
)
from ottla.wire.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from ottla.wire.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from ottla.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from ottla.wire.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from ottla.wire.messages.consumer_group_partition_metadata_key import (
    ConsumerGroupPartitionMetadataKey,
)
from ottla.wire.messages.consumer_group_partition_metadata_value import (
    ConsumerGroupPartitionMetadataValue,
    PartitionMetadata,
    TopicMetadata,
)
from ottla.wire.messages.consumer_group_regular_expression_key import (
    ConsumerGroupRegularExpressionKey,
)
from ottla.wire.messages.consumer_group_regular_expression_value import (
    ConsumerGroupRegularExpressionValue,
)
from ottla.wire.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from ottla.wire.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from ottla.wire.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from ottla.wire.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.wire.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from ottla.wire.messages.describe_cleaner_request import (
    CleanerTopicWanted,
    DescribeCleanerRequest,
)
from ottla.wire.messages.describe_cleaner_response import (
    DescribeCleanerResponse,
    DescribedCleanerLog,
    DescribedCleanerTopic,
)
from ottla.wire.messages.describe_client_instances_request import DescribeClientInstancesRequest
from ottla.wire.messages.describe_client_instances_response import (
    ClientInstance,
    DescribeClientInstancesResponse,
)
from ottla.wire.messages.describe_metadata_changes_request import (
    DescribeMetadataChangesRequest,
)
from ottla.wire.messages.describe_metadata_changes_response import (
    DescribeMetadataChangesResponse,
    MetadataChange,
)
from ottla.wire.messages.describe_node_request import DescribeNodeRequest
from ottla.wire.messages.describe_node_response import (
    DescribeNodeResponse,
    NodeMetric,
    RecoveringLogDir,
)
from ottla.wire.messages.describe_quota_usage_request import DescribeQuotaUsageRequest
from ottla.wire.messages.describe_quota_usage_response import (
    DescribedQuotaUsage,
    DescribeQuotaUsageResponse,
)
from ottla.wire.messages.describe_share_delivery_request import DescribeShareDeliveryRequest
from ottla.wire.messages.describe_share_delivery_response import (
    DescribedShareDelivery,
    DescribeShareDeliveryResponse,
)
from ottla.wire.messages.describe_share_records_request import DescribeShareRecordsRequest
from ottla.wire.messages.describe_share_records_response import (
    DescribedShareRange,
    DescribeShareRecordsResponse,
)
from ottla.wire.messages.drain_broker_request import DrainBrokerRequest
from ottla.wire.messages.drain_broker_response import DrainBrokerResponse
from ottla.wire.messages.group_metadata_key import GroupMetadataKey
from ottla.wire.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from ottla.wire.messages.offload_logs_request import OffloadLogsRequest, TopicToOffload
from ottla.wire.messages.offload_logs_response import (
    OffloadLogsPartitionResult,
    OffloadLogsResponse,
    OffloadLogsTopicResult,
)
from ottla.wire.messages.offset_commit_key import OffsetCommitKey
from ottla.wire.messages.offset_commit_value import OffsetCommitValue
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.tail_client_metrics_request import TailClientMetricsRequest
from ottla.wire.messages.tail_client_metrics_response import (
    ClientPush,
    TailClientMetricsResponse,
)
from ottla.wire.messages.transaction_log_key import TransactionLogKey
from ottla.wire.messages.transaction_log_value import PartitionsSchema, TransactionLogValue
from ottla.wire.messages.unregister_controller_request import UnregisterControllerRequest
from ottla.wire.messages.unregister_controller_response import UnregisterControllerResponse
from ottla.wire.messages.write_snapshot_request import WriteSnapshotRequest
from ottla.wire.messages.write_snapshot_response import WriteSnapshotResponse
from tests.wire.share_record_rows import SHARE_ROWS
from tests.wire.tier_record_rows import TIER_ROWS

# Messages that nothing serves yet have no files.
aborted = message_module("AbortedTxn")
describe_request = message_module("StreamsGroupDescribeRequest")
describe = message_module("StreamsGroupDescribeResponse")
heartbeat_request = message_module("StreamsGroupHeartbeatRequest")
heartbeat_response = message_module("StreamsGroupHeartbeatResponse")
topology_update = message_module("StreamsGroupTopologyDescriptionUpdateRequest")
topology_answer = message_module("StreamsGroupTopologyDescriptionUpdateResponse")
txn_request = message_module("TxnOffsetCommitRequest")
txn_response = message_module("TxnOffsetCommitResponse")

TOPIC_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")

WHAT_KIO_LACKS: list[tuple[Message, int, str]] = [
    *SHARE_ROWS,
    *TIER_ROWS,
    (
        aborted.AbortedTxn(producer_id=1, first_offset=2, last_offset=3, last_stable_offset=-1),
        0,
        "0000000000000001 0000000000000002 0000000000000003 ffffffffffffffff",
    ),
    (TransactionLogKey(transactional_id="t1"), 0, "0002 7431"),
    (
        TransactionLogValue(
            producer_id=1,
            producer_epoch=2,
            transaction_timeout_ms=60_000,
            transaction_status=1,
            transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[3])],
            transaction_last_update_timestamp_ms=258,
            transaction_start_timestamp_ms=257,
        ),
        0,
        "0000000000000001 0002 0000ea60 01 00000001 0001 74 00000001 00000003"
        " 0000000000000102 0000000000000101",
    ),
    (
        TransactionLogValue(
            producer_id=1,
            previous_producer_id=7,
            producer_epoch=2,
            transaction_timeout_ms=60_000,
            transaction_status=0,
            transaction_partitions=None,
            transaction_last_update_timestamp_ms=258,
            transaction_start_timestamp_ms=-1,
            client_transaction_version=2,
        ),
        1,
        "0000000000000001 0002 0000ea60 00 00 0000000000000102 ffffffffffffffff"
        " 02 00 08 0000000000000007 02 02 0002",
    ),
    (ConsumerGroupMetadataKey(group_id="g1"), 0, "0002 6731"),
    (
        ConsumerGroupMetadataValue(epoch=5, metadata_hash=258),
        0,
        "00000005  01 00 08 0000000000000102",
    ),
    (ConsumerGroupPartitionMetadataKey(group_id="g1"), 0, "0002 6731"),
    (
        ConsumerGroupPartitionMetadataValue(
            topics=[
                TopicMetadata(
                    topic_id=TOPIC_ID,
                    topic_name="t",
                    num_partitions=3,
                    partition_metadata=[PartitionMetadata(partition=1, racks=["r"])],
                )
            ]
        ),
        0,
        "02 00112233445566778899aabbccddeeff 02 74 00000003 02 00000001 02 02 72 00 00 00",
    ),
    (ConsumerGroupMemberMetadataKey(group_id="g1", member_id="m"), 0, "0002 6731 0001 6d"),
    (
        ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id="r",
            client_id="c",
            client_host="/h",
            subscribed_topic_names=["t"],
            subscribed_topic_regex="x.*",
            rebalance_timeout_ms=1_000,
            server_assignor=None,
            classic_member_metadata=ClassicMemberMetadata(
                session_timeout_ms=9,
                supported_protocols=[ClassicProtocol(name="p", metadata=b"\xaa")],
            ),
        ),
        0,
        "00 02 72 02 63 03 2f68 02 02 74 04 782e2a 000003e8 00"
        "  01 00 0c 01 00000009 02 02 70 02 aa 00 00",
    ),
    (ConsumerGroupTargetAssignmentMetadataKey(group_id="g1"), 0, "0002 6731"),
    (ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=5), 0, "00000005 00"),
    (
        ConsumerGroupTargetAssignmentMemberKey(group_id="g1", member_id="m"),
        0,
        "0002 6731 0001 6d",
    ),
    (
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[TopicPartition(topic_id=TOPIC_ID, partitions=[1, 2])]
        ),
        0,
        "02 00112233445566778899aabbccddeeff 03 00000001 00000002 00 00",
    ),
    (
        ConsumerGroupCurrentMemberAssignmentKey(group_id="g1", member_id="m"),
        0,
        "0002 6731 0001 6d",
    ),
    (
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=5,
            previous_member_epoch=4,
            state=1,
            assigned_partitions=[CurrentPartitions(topic_id=TOPIC_ID, partitions=[1])],
            partitions_pending_revocation=[CurrentPartitions(topic_id=TOPIC_ID, partitions=[2])],
        ),
        0,
        "00000005 00000004 01  02 00112233445566778899aabbccddeeff 02 00000001 00"
        "  02 00112233445566778899aabbccddeeff 02 00000002 00  00",
    ),
    (
        ConsumerGroupRegularExpressionKey(group_id="g1", regular_expression="x.*"),
        0,
        "0002 6731 0003 782e2a",
    ),
    (
        ConsumerGroupRegularExpressionValue(topics=["t"], version=7, timestamp=9),
        0,
        "02 02 74 0000000000000007 0000000000000009 00",
    ),
    (
        GroupMetadataKey(group="g1"),
        0,
        "0002 6731",
    ),
    (
        GroupMetadataValue(
            protocol_type="c",
            generation=3,
            protocol=None,
            leader="m",
            members=[
                MemberMetadata(
                    member_id="m",
                    client_id="i",
                    client_host="h",
                    session_timeout=10,
                    subscription=b"s",
                    assignment=b"as",
                )
            ],
        ),
        0,
        "0001 63 00000003 ffff 0001 6d 00000001"
        "  0001 6d 0001 69 0001 68 0000000a 00000001 73 00000002 6173",
    ),
    (
        GroupMetadataValue(
            protocol_type="c",
            generation=3,
            protocol="p",
            leader=None,
            members=[
                MemberMetadata(
                    member_id="m",
                    client_id="i",
                    client_host="h",
                    rebalance_timeout=20,
                    session_timeout=10,
                )
            ],
        ),
        1,
        "0001 63 00000003 0001 70 ffff 00000001"
        "  0001 6d 0001 69 0001 68 00000014 0000000a 00000000 00000000",
    ),
    (
        GroupMetadataValue(
            protocol_type="c", generation=3, protocol="p", leader="m", current_state_timestamp=5
        ),
        2,
        "0001 63 00000003 0001 70 0001 6d 0000000000000005 00000000",
    ),
    (
        GroupMetadataValue(
            protocol_type="c",
            generation=3,
            protocol="p",
            leader="m",
            current_state_timestamp=5,
            members=[
                MemberMetadata(member_id="m", group_instance_id="n", rebalance_timeout=20),
                MemberMetadata(member_id="o", rebalance_timeout=20),
            ],
        ),
        3,
        "0001 63 00000003 0001 70 0001 6d 0000000000000005 00000002"
        "  0001 6d 0001 6e 0000 0000 00000014 00000000 00000000 00000000"
        "  0001 6f ffff 0000 0000 00000014 00000000 00000000 00000000",
    ),
    (
        GroupMetadataValue(
            protocol_type="c",
            generation=3,
            protocol="p",
            leader="m",
            current_state_timestamp=5,
            members=[MemberMetadata(member_id="m", group_instance_id="n", rebalance_timeout=20)],
        ),
        4,
        "02 63 00000003 02 70 02 6d 0000000000000005 02"
        "  02 6d 02 6e 01 01 00000014 00000000 01 01 00"
        "  00",
    ),
    (
        OffsetCommitKey(group="g", topic="t", partition=5),
        0,
        "0001 67 0001 74 00000005",
    ),
    (
        OffsetCommitValue(offset=258, metadata="hi", commit_timestamp=9),
        0,
        "0000000000000102 0002 6869 0000000000000009",
    ),
    (
        OffsetCommitValue(offset=258, metadata="hi", commit_timestamp=9, expire_timestamp=10),
        1,
        "0000000000000102 0002 6869 0000000000000009 000000000000000a",
    ),
    (
        OffsetCommitValue(offset=258, metadata="hi", commit_timestamp=9),
        2,
        "0000000000000102 0002 6869 0000000000000009",
    ),
    (
        OffsetCommitValue(offset=258, leader_epoch=4, metadata="hi", commit_timestamp=9),
        3,
        "0000000000000102 00000004 0002 6869 0000000000000009",
    ),
    (
        OffsetCommitValue(
            offset=258, leader_epoch=4, metadata="hi", commit_timestamp=9, topic_id=TOPIC_ID
        ),
        4,
        "0000000000000102 00000004 03 6869 0000000000000009"
        "  01 00 10 00112233445566778899aabbccddeeff",
    ),
    (
        ApiVersionsRequest(
            client_software_name="ab", client_software_version="1", cluster_id="c", node_id=7
        ),
        5,
        "03 6162  02 31  02 63  00000007  00",
    ),
    (
        ApiVersionsResponse(
            error_code=35,
            api_keys=[ApiVersion(api_key=18, min_version=0, max_version=5)],
            throttle_time_ms=1,
            supported_features=[SupportedFeatureKey(name="f", min_version=0, max_version=2)],
            finalized_features_epoch=9,
            finalized_features=[
                FinalizedFeatureKey(name="f", max_version_level=2, min_version_level=2)
            ],
        ),
        5,
        # error, one API with its empty tags, throttle, then three tagged fields of 8, 8, 8 bytes
        "0023  02 0012 0000 0005 00  00000001  03"
        " 00 08 02 0266 0000 0002 00  01 08 0000000000000009  02 08 02 0266 0002 0002 00",
    ),
    (DeleteGroupsRequest(groups_names=["g", ""]), 3, "03 0267 01 00"),
    (
        DeleteGroupsResponse(
            throttle_time_ms=2,
            results=[
                DeletableGroupResult(group_id="g", error_code=68, error_message="no"),
                DeletableGroupResult(group_id="h"),
            ],
        ),
        3,
        "00000002 03  0267 0044 036e6f 00  0268 0000 00 00  00",
    ),
    (DescribeNodeRequest(), 0, "00"),
    (
        DescribeNodeResponse(
            node_id=1,
            state="recovering",
            recovery=[
                RecoveringLogDir(
                    log_dir="/d",
                    remaining_logs=3,
                    remaining_segments=4,
                    bytes_total=256,
                    bytes_done=16,
                )
            ],
            metrics=[NodeMetric(name="m", value=1.0)],
            problems=["t"],
        ),
        0,
        "00000000 0000 00 00000001 0b 7265636f766572696e67"
        " 02  032f64 00000003 00000004 0000000000000100 0000000000000010 00"
        " 02  026d 3ff0000000000000 00  02  0274  00",
    ),
    (DrainBrokerRequest(undo=True), 0, "01 00"),
    (DrainBrokerResponse(error_code=8, error_message="no"), 0, "00000000 0008 036e6f 00"),
    (UnregisterControllerRequest(controller_id=5), 0, "00000005 00"),
    (
        UnregisterControllerResponse(error_code=136, error_message="e"),
        0,
        "00000000 0088 0265 00",
    ),
    (
        DescribeMetadataChangesRequest(start_offset=3, wait_ms=500),
        0,
        "0000000000000003 000001f4 00",
    ),
    (
        DescribeMetadataChangesResponse(
            next_offset=5,
            end_offset=6,
            changes=[MetadataChange(offset=4, epoch=2, timestamp_ms=1, kind="k", text="t")],
        ),
        0,
        "00000000 0000 00 0000000000000005 0000000000000006"
        " 02 0000000000000004 00000002 0000000000000001 026b 0274 00 00",
    ),
    (DescribeQuotaUsageRequest(count_max=20), 0, "00000014 00"),
    (DescribeShareDeliveryRequest(group_id="g"), 0, "0267 00"),
    (
        DescribeShareDeliveryResponse(
            partitions=[
                DescribedShareDelivery(
                    topic_name="t",
                    partition_index=1,
                    acquired_count=2,
                    ready_count=3,
                    delayed_count=4,
                    next_due_ms=5,
                    backoff_count=6,
                    next_backoff_ms=-1,
                    key_count=7,
                    dead_letter_count=8,
                    is_spread=True,
                )
            ]
        ),
        0,
        "00000000 0000 00  02  0274 00000001 0000000000000002 0000000000000003 0000000000000004"
        " 0000000000000005 0000000000000006 ffffffffffffffff 0000000000000007 0000000000000008"
        " 01 00  00",
    ),
    (
        DescribeShareRecordsRequest(
            group_id="g",
            topic_name="t",
            partition_index=1,
            start_offset=2,
            range_count_max=3,
            has_waiting=True,
        ),
        0,
        "0267 0274 00000001 0000000000000002 00000003 01 00",
    ),
    (
        DescribeShareRecordsResponse(
            next_offset=-1,
            ranges=[
                DescribedShareRange(
                    first_offset=1,
                    last_offset=2,
                    state=1,
                    delivery_count=3,
                    member_id="m",
                    lock_end_ms=4,
                    is_being_stored=True,
                )
            ],
        ),
        0,
        "00000000 0000 00 ffffffffffffffff 02 0000000000000001 0000000000000002 01 00000003"
        " 026d 0000000000000004 01 00 00",
    ),
    (
        DescribeQuotaUsageResponse(
            clients=[
                DescribedQuotaUsage(
                    quota_key="k", user="u", client_id="", limit=1.0, rate=-2.0, throttle_ms=3
                )
            ]
        ),
        0,
        "00000000 0000 00"
        " 02  026b 0275 01 3ff0000000000000 c000000000000000 0000000000000003 00  00",
    ),
    (DescribeCleanerRequest(), 0, "00 00"),
    (
        DescribeCleanerRequest(topics=[CleanerTopicWanted(name="t", partitions=[3])]),
        0,
        "02  0274 02 00000003 00  00",
    ),
    (
        DescribeCleanerResponse(
            now_ms=1,
            thread_count=2,
            pass_count=3,
            failure_count=4,
            died_worker_count=5,
            read_bytes=6,
            written_bytes=7,
            topics=[
                DescribedCleanerTopic(
                    name="t",
                    partitions=[
                        DescribedCleanerLog(
                            partition_index=8,
                            state="idle",
                            reason="r",
                            is_wanted=True,
                            clean_bytes=9,
                            cleanable_bytes=10,
                            first_dirty_offset=11,
                            end_offset=12,
                            last_ended_ms=13,
                            last_ms=14,
                            last_read_bytes=15,
                            last_written_bytes=16,
                            last_read_records=17,
                            last_written_records=18,
                        )
                    ],
                )
            ],
        ),
        0,
        "00000000 0000 00 0000000000000001 00000002 0000000000000003 0000000000000004"
        " 0000000000000005 0000000000000006 0000000000000007"
        " 02  0274 02  00000008 05 69646c65 0272 ffffffffffffffff 01"
        " 0000000000000009 000000000000000a 000000000000000b 000000000000000c"
        " 000000000000000d 000000000000000e 000000000000000f 0000000000000010"
        " 0000000000000011 0000000000000012 00  00  00",
    ),
    (WriteSnapshotRequest(validate_only=True), 0, "01 00"),
    (
        WriteSnapshotResponse(
            error_message=None,
            node_id=101,
            end_offset=9,
            epoch=5,
            size_bytes=512,
            latest_end_offset=9,
            log_start_offset=2,
        ),
        0,
        "00000000 0000 00 00000065 0000000000000009 00000005 0000000000000200"
        " 0000000000000009 0000000000000002 00",
    ),
    (
        CleanLogsRequest(retry=True, topics=[TopicToClean(name="t", partitions=[3])]),
        0,
        "01  02  0274 02 00000003 00  00",
    ),
    (
        CleanLogsResponse(
            error_code=8,
            error_message="no",
            topics=[
                CleanLogsTopicResult(
                    name="t",
                    partitions=[
                        CleanLogsPartitionResult(
                            partition_index=3,
                            error_code=56,
                            error_message="e",
                            is_accepted=True,
                            note="n",
                        )
                    ],
                )
            ],
        ),
        0,
        "00000000 0008 036e6f  02  0274 02 00000003 0038 0265 01 026e 00  00  00",
    ),
    (
        OffloadLogsRequest(validate_only=True, topics=[TopicToOffload(name="t", partitions=[3])]),
        0,
        "01  02  0274 02 00000003 00  00",
    ),
    (
        OffloadLogsResponse(
            error_code=8,
            error_message="no",
            topics=[
                OffloadLogsTopicResult(
                    name="t",
                    partitions=[
                        OffloadLogsPartitionResult(
                            partition_index=3,
                            error_code=56,
                            error_message="e",
                            segment_count=2,
                            size_bytes=256,
                            local_start_offset=9,
                        )
                    ],
                )
            ],
        ),
        0,
        "00000000 0008 036e6f  02  0274 02 00000003 0038 0265"
        " 00000002 0000000000000100 0000000000000009 00  00  00",
    ),
    (
        DescribeClientInstancesRequest(after=UUID(int=6), limit=256),
        0,
        "00000000000000000000000000000006 00000100 00",
    ),
    (
        DescribeClientInstancesResponse(
            node_id=1,
            more=True,
            instances=[
                ClientInstance(
                    client_instance_id=UUID(int=7),
                    client_id="c",
                    client_software_name="n",
                    client_software_version="v",
                    client_source_address="a",
                    client_source_port=256,
                    subscription_id=2,
                    push_interval_ms=1000,
                    metrics=["m"],
                    last_get_ms_ago=3,
                    push_count=4,
                    push_bytes=5,
                    last_error_code=117,
                    terminating=True,
                )
            ],
        ),
        0,
        "00000000 0000 00 00000001 01 02  00000000000000000000000000000007 0263 026e 0276 0261"
        " 00000100 00000002 000003e8 02 026d 0000000000000003 ffffffffffffffff 0000000000000004"
        " 0000000000000005 0075 01 00  00",
    ),
    (
        TailClientMetricsRequest(cursor=9, client="c", max_bytes=256),
        0,
        "0000000000000009 0263 00000100 00",
    ),
    (
        TailClientMetricsResponse(
            node_id=1,
            cursor=9,
            missed=2,
            pushes=[
                ClientPush(
                    client_instance_id=UUID(int=7),
                    client_id=None,
                    client_software_name="n",
                    client_software_version="v",
                    client_source_address="a",
                    received_ms=3,
                    metrics=b"\xff",
                )
            ],
        ),
        0,
        "00000000 0000 00 00000001 0000000000000009 0000000000000002 02"
        " 00000000000000000000000000000007 00 026e 0276 0261 0000000000000003 02ff 00  00",
    ),
    (
        describe_request.StreamsGroupDescribeRequest(
            group_ids=["g"],
            include_authorized_operations=True,
            include_topology_description=True,
        ),
        1,
        "02 0267  01 01 00",
    ),
    (
        describe.StreamsGroupDescribeResponse(
            groups=[
                describe.DescribedGroup(
                    group_id="g",
                    group_state="E",
                    group_epoch=1,
                    assignment_epoch=2,
                    topology_description=describe.TopologyDescription(
                        global_stores=[
                            describe.TopologyDescriptionGlobalStore(
                                source=describe.TopologyDescriptionNode(name="s", node_type=1)
                            )
                        ]
                    ),
                    topology_description_status=1,
                )
            ]
        ),
        1,
        # throttle, one group: error, message, id, state, epochs, no topology, no members,
        "00000000 02  0000 00 0267 0245 00000001 00000002 ff 01 80000000"
        # a description: no subtopologies, one global store of a source and an empty processor,
        " 01 01 02  0273 01 01 00 01 01 00   01 00 01 00 01 01 00   00 00"
        # its status, the end of the group, the end
        " 01 00 00",
    ),
    (
        heartbeat_request.StreamsGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=-1,
            endpoint_information_epoch=3,
            active_tasks=[heartbeat_request.TaskIds(subtopology_id="0", partitions=[1, 2])],
            user_endpoint=heartbeat_request.Endpoint(host="h", port=65535),
            shutdown_application=True,
        ),
        1,
        "0267 026d ffffffff 00000003 00 00 ffffffff ff"
        " 02 0230 03 00000001 00000002 00  00 00 00  01 0268 ffff 00  00 00 00 01 00",
    ),
    (
        heartbeat_response.StreamsGroupHeartbeatResponse(
            member_id="m",
            member_epoch=1,
            heartbeat_interval_ms=5,
            task_offset_interval_ms=6,
            acceptable_recovery_lag=7,
            status=[heartbeat_response.Status(status_code=-1, status_detail="d")],
            topology_description_required=True,
            endpoint_information_epoch=4,
        ),
        1,
        "00000000 0000 00 026d 00000001 00000005 00000006 0000000000000007"
        " 02 ff 0264 00  00 00 00 01 00000004 00 00",
    ),
    (
        topology_update.StreamsGroupTopologyDescriptionUpdateRequest(
            group_id="g",
            member_id="m",
            topology_epoch=2,
            topology_description=topology_update.TopologyDescription(
                subtopologies=[
                    topology_update.TopologyDescriptionSubtopology(
                        subtopology_id="0",
                        nodes=[
                            topology_update.TopologyDescriptionNode(
                                name="n", node_type=2, sink_topic="t", stores=["s"]
                            )
                        ],
                    )
                ]
            ),
        ),
        0,
        "0267 026d 00000002  02 0230 02 026e 02 01 0274 02 0273 01 00 00  01 00 00",
    ),
    (
        topology_answer.StreamsGroupTopologyDescriptionUpdateResponse(
            error_code=1, error_message="e"
        ),
        0,
        "00000000 0001 0265 00",
    ),
    (
        txn_request.TxnOffsetCommitRequest(
            transactional_id="t",
            group_id="g",
            producer_id=1,
            producer_epoch=2,
            generation_id_or_member_epoch=3,
            member_id="m",
            topics=[
                txn_request.TxnOffsetCommitRequestTopic(
                    name="dropped",
                    topic_id=TOPIC_ID,
                    partitions=[
                        txn_request.TxnOffsetCommitRequestPartition(
                            partition_index=4, committed_offset=5, committed_metadata=None
                        )
                    ],
                )
            ],
        ),
        6,
        "0274 0267 0000000000000001 0002 00000003 026d 00"
        " 02 00112233445566778899aabbccddeeff 02 00000004 0000000000000005 ffffffff 00 00 00 00",
    ),
    (
        txn_response.TxnOffsetCommitResponse(
            topics=[
                txn_response.TxnOffsetCommitResponseTopic(
                    name="dropped",
                    topic_id=TOPIC_ID,
                    partitions=[
                        txn_response.TxnOffsetCommitResponsePartition(
                            partition_index=4, error_code=7
                        )
                    ],
                )
            ]
        ),
        6,
        "00000000 02 00112233445566778899aabbccddeeff 02 00000004 0007 00 00 00",
    ),
]

WELL_KNOWN: list[tuple[Message, int, str]] = [
    (ApiVersionsRequest(), 0, ""),
    (
        ApiVersionsResponse(
            error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
        ),
        0,
        "0023 00000001 0012 0000 0004",
    ),
    (
        ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(
                    name="t",
                    partition_data=[
                        PartitionProduceData(index=0, records=b"\xaa\xbb"),
                        PartitionProduceData(index=1, records=None),
                    ],
                )
            ],
        ),
        3,
        "ffff ffff 00007530 00000001 0001 74 00000002 00000000 00000002 aabb  00000001 ffffffff",
    ),
]

ROWS = [*WHAT_KIO_LACKS, *WELL_KNOWN]


def test_every_version_that_kio_lacks_is_written_out_here() -> None:
    known = set()
    for versions in schema_name_map.values():
        for version, paths in versions.items():
            known |= {(path.rpartition(":")[2], version) for path in paths.values()}
    ours = {(name, version) for name, kind in all_messages() for version in kind.VERSIONS}
    assert {(type(row).__name__, version) for row, version, _ in WHAT_KIO_LACKS} == ours - known


def label(value: object) -> str:
    return type(value).__name__ if isinstance(value, Message) else ""


@pytest.mark.parametrize(("message", "version", "words"), ROWS, ids=label)
def test_a_message_has_the_bytes_written_out_by_hand(
    message: Message, version: int, words: str
) -> None:
    assert codec.encode(message, version).hex() == words.replace(" ", "")


@pytest.mark.parametrize(("message", "version", "words"), ROWS, ids=label)
def test_the_bytes_written_out_by_hand_are_read_as_the_message(
    message: Message, version: int, words: str
) -> None:
    read = codec.decode(type(message), version, bytes.fromhex(words))
    # What the version drops is not read back; written again it must be the same bytes.
    assert codec.encode(read, version).hex() == words.replace(" ", "")
    if "dropped" not in repr(message):
        assert read == message
