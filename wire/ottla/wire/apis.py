"""The table of all APIs, one row each.

`API` maps Kafka's API key to the row; `api.py` defines rows and their notation. The rows follow
Kafka (KafkaApis, ControllerApis, AclApis, AuthHelper). They determine a broker's checks of
requests, forwarding, the controller's decisions and refusals. docs/compatibility.md and
docs/permissions.md are generated from them.

`Api.advertised` contains the versions that a listener may list in ApiVersions. It never contains a
version that Kafka still calls unstable, and is empty for Ottla's own APIs. Telemetry (71, 72) is
listed only while it is enabled, and a forwarded API only in the versions that the active controller
supports; the broker decides that.
"""

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import cast

from ottla.model.errors import ErrorCode
from ottla.model.limits import INT32_MAX
from ottla.model.security.acls import AclOperation as OP  # noqa: N814  # named 150 times
from ottla.model.security.acls import ResourceType
from ottla.wire.api import (
    BOTH,
    AnyOf,
    CostBounds,
    Decider,
    Parts,
    Refusal,
    Scope,
    When,
    between_nodes,
    coordinated,
    forwarded,
    need,
    not_served,
    on_cluster,
    on_configs,
    on_group,
    on_topics,
    on_transaction,
    served,
)
from ottla.wire.codec_types import Message
from ottla.wire.schema import module_name

PRODUCE = 0
FETCH = 1
LIST_OFFSETS = 2
METADATA = 3
OFFSET_COMMIT = 8
OFFSET_FETCH = 9
FIND_COORDINATOR = 10
JOIN_GROUP = 11
HEARTBEAT = 12
LEAVE_GROUP = 13
SYNC_GROUP = 14
DESCRIBE_GROUPS = 15
LIST_GROUPS = 16
SASL_HANDSHAKE = 17
API_VERSIONS = 18
CREATE_TOPICS = 19
DELETE_TOPICS = 20
DELETE_RECORDS = 21
INIT_PRODUCER_ID = 22
OFFSET_FOR_LEADER_EPOCH = 23
ADD_PARTITIONS_TO_TXN = 24
ADD_OFFSETS_TO_TXN = 25
END_TXN = 26
WRITE_TXN_MARKERS = 27
TXN_OFFSET_COMMIT = 28
DESCRIBE_ACLS = 29
CREATE_ACLS = 30
DELETE_ACLS = 31
DESCRIBE_CONFIGS = 32
ALTER_CONFIGS = 33
ALTER_REPLICA_LOG_DIRS = 34
DESCRIBE_LOG_DIRS = 35
SASL_AUTHENTICATE = 36
CREATE_PARTITIONS = 37
CREATE_DELEGATION_TOKEN = 38
RENEW_DELEGATION_TOKEN = 39
EXPIRE_DELEGATION_TOKEN = 40
DESCRIBE_DELEGATION_TOKEN = 41
DELETE_GROUPS = 42
ELECT_LEADERS = 43
INCREMENTAL_ALTER_CONFIGS = 44
ALTER_PARTITION_REASSIGNMENTS = 45
LIST_PARTITION_REASSIGNMENTS = 46
OFFSET_DELETE = 47
DESCRIBE_CLIENT_QUOTAS = 48
ALTER_CLIENT_QUOTAS = 49
DESCRIBE_USER_SCRAM_CREDENTIALS = 50
ALTER_USER_SCRAM_CREDENTIALS = 51
VOTE = 52
BEGIN_QUORUM_EPOCH = 53
END_QUORUM_EPOCH = 54
DESCRIBE_QUORUM = 55
ALTER_PARTITION = 56
UPDATE_FEATURES = 57
ENVELOPE = 58
FETCH_SNAPSHOT = 59
DESCRIBE_CLUSTER = 60
DESCRIBE_PRODUCERS = 61
BROKER_REGISTRATION = 62
BROKER_HEARTBEAT = 63
UNREGISTER_BROKER = 64
DESCRIBE_TRANSACTIONS = 65
LIST_TRANSACTIONS = 66
ALLOCATE_PRODUCER_IDS = 67
CONSUMER_GROUP_HEARTBEAT = 68
CONSUMER_GROUP_DESCRIBE = 69
CONTROLLER_REGISTRATION = 70
GET_TELEMETRY_SUBSCRIPTIONS = 71
PUSH_TELEMETRY = 72
ASSIGN_REPLICAS_TO_DIRS = 73
LIST_CONFIG_RESOURCES = 74
DESCRIBE_TOPIC_PARTITIONS = 75
SHARE_GROUP_HEARTBEAT = 76
SHARE_GROUP_DESCRIBE = 77
SHARE_FETCH = 78
SHARE_ACKNOWLEDGE = 79
ADD_RAFT_VOTER = 80
REMOVE_RAFT_VOTER = 81
UPDATE_RAFT_VOTER = 82
INITIALIZE_SHARE_GROUP_STATE = 83
READ_SHARE_GROUP_STATE = 84
WRITE_SHARE_GROUP_STATE = 85
DELETE_SHARE_GROUP_STATE = 86
READ_SHARE_GROUP_STATE_SUMMARY = 87
STREAMS_GROUP_HEARTBEAT = 88
STREAMS_GROUP_DESCRIBE = 89
DESCRIBE_SHARE_GROUP_OFFSETS = 90
ALTER_SHARE_GROUP_OFFSETS = 91
DELETE_SHARE_GROUP_OFFSETS = 92
STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
UNREGISTER_CONTROLLER = 94
DESCRIBE_NODE = 20000
DRAIN_BROKER = 20001
DESCRIBE_CLIENT_INSTANCES = 20002
TAIL_CLIENT_METRICS = 20003
DESCRIBE_CLEANER = 20004
CLEAN_LOGS = 20005
DESCRIBE_QUOTA_USAGE = 20006
DESCRIBE_METADATA_CHANGES = 20007
WRITE_SNAPSHOT = 20008
DESCRIBE_SHARE_DELIVERY = 20009
DESCRIBE_SHARE_RECORDS = 20010
OFFLOAD_LOGS = 20011

FETCH_TOPIC_IDS_FROM = 13
PRODUCE_TOPIC_IDS_FROM = 13
OFFSETS_TOPIC_IDS_FROM = 10
"""The first version of OffsetCommit and OffsetFetch that identifies topics by id."""

DELETE_TOPICS_STATES_FROM = 6
"""The first version of DeleteTopics that identifies each topic by id or name."""

COORDINATOR_KEYS_FROM = 4
"""The first version of FindCoordinator that looks up several groups or transactional ids
(KIP-699)."""

OFFSET_GROUPS_FROM = 8
"""The first version of OffsetFetch that requests offsets of several groups (KIP-709)."""

ADD_PARTITIONS_OF_BROKERS_FROM = 4
"""The first version of AddPartitionsToTxn that brokers send. Its request contains several
transactions."""

PRODUCE_ADVERTISED_LOWEST = 0
"""The lowest version of Produce that ApiVersions lists, although versions 0 to 2 are refused.
librdkafka disables features if the oldest versions are not listed (KAFKA-18659)."""

CLUSTER, TOPIC, GROUP = ResourceType.CLUSTER, ResourceType.TOPIC, ResourceType.GROUP
TRANSACTION, USER = ResourceType.TRANSACTIONAL_ID, ResourceType.USER
TOKEN = ResourceType.DELEGATION_TOKEN

# ApiVersions 5 (KIP-1242) is advertised although Kafka's schema calls it unstable: Java 4.4 sends
# it.
_ROWS = (
    served(
        PRODUCE,
        "Produce",
        "3-13 flexible 9+",
        on_transaction(when=When.TRANSACTIONAL),
        on_topics(OP.WRITE, "topic_data.name"),
        parts=Parts(is_served_empty=True),
        advertised_from=PRODUCE_ADVERTISED_LOWEST,
    ),
    served(
        FETCH,
        "Fetch",
        "4-18 flexible 12+",
        need(OP.READ, TOPIC, "topics.topic", Scope.EACH, when=When.CONSUMER),
        need(
            OP.CLUSTER_ACTION,
            CLUSTER,
            "topics.topic",
            Scope.EACH,
            when=When.FOLLOWER,
            code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ),
        listener=BOTH,
    ),
    served(LIST_OFFSETS, "ListOffsets", "1-11 flexible 6+", on_topics(OP.DESCRIBE), parts=Parts()),
    served(
        METADATA,
        "Metadata",
        "0-13 flexible 9+",
        on_topics(OP.DESCRIBE),
        need(OP.DESCRIBE, TOPIC, "", Scope.HIDDEN),
        AnyOf(
            (
                need(OP.CREATE, CLUSTER, "", Scope.OPTION, when=When.CREATING),
                need(OP.CREATE, TOPIC, "topics.name", Scope.OPTION, when=When.CREATING),
            )
        ),
        is_answer_kept=True,
    ),
    coordinated(
        OFFSET_COMMIT,
        "OffsetCommit",
        "2-10 flexible 8+",
        on_group(OP.READ),
        on_topics(OP.READ),
        parts=Parts(),
    ),
    coordinated(
        OFFSET_FETCH,
        "OffsetFetch",
        "1-10 flexible 6+",
        on_group(OP.DESCRIBE, "groups.group_id", Scope.EACH),
        on_topics(OP.DESCRIBE, "groups.topics.name"),
        need(OP.DESCRIBE, TOPIC, "", Scope.HIDDEN),
        parts=Parts(single="group_id", lists_from=OFFSET_GROUPS_FROM),
    ),
    served(
        FIND_COORDINATOR,
        "FindCoordinator",
        "0-6 flexible 3+",
        need(OP.DESCRIBE, GROUP, "coordinator_keys", Scope.EACH, when=When.GROUP_KEYS),
        need(OP.DESCRIBE, TRANSACTION, "coordinator_keys", Scope.EACH, when=When.TRANSACTION_KEYS),
        need(OP.CLUSTER_ACTION, CLUSTER, "coordinator_keys", Scope.EACH, when=When.SHARE_KEYS),
        parts=Parts(single="key", lists_from=COORDINATOR_KEYS_FROM),
        refusal=Refusal(is_explained=False),
    ),
    coordinated(
        JOIN_GROUP,
        "JoinGroup",
        "0-9 flexible 6+",
        on_group(OP.READ),
        refusal=Refusal(repeats=("member_id",), nulls=("protocol_name",)),
    ),
    coordinated(HEARTBEAT, "Heartbeat", "0-4 flexible 4+", on_group(OP.READ)),
    coordinated(LEAVE_GROUP, "LeaveGroup", "0-5 flexible 4+", on_group(OP.READ)),
    coordinated(SYNC_GROUP, "SyncGroup", "0-5 flexible 4+", on_group(OP.READ)),
    coordinated(
        DESCRIBE_GROUPS,
        "DescribeGroups",
        "0-6 flexible 5+",
        on_group(OP.DESCRIBE, "groups", Scope.EACH),
        parts=Parts(),
    ),
    coordinated(
        LIST_GROUPS,
        "ListGroups",
        "0-5 flexible 3+",
        AnyOf((on_cluster(OP.DESCRIBE), need(OP.DESCRIBE, GROUP, "", Scope.HIDDEN))),
    ),
    served(
        SASL_HANDSHAKE,
        "SaslHandshake",
        "0-1",
        why_open="it comes before a client is known",
        listener=BOTH,
    ),
    served(
        API_VERSIONS,
        "ApiVersions",
        "0-5 flexible 3+",
        why_open="it comes before a client is known",
        listener=BOTH,
    ),
    forwarded(
        CREATE_TOPICS,
        "CreateTopics",
        "2-7 flexible 5+",
        AnyOf((on_cluster(OP.CREATE), on_topics(OP.CREATE))),
        need(OP.DESCRIBE_CONFIGS, TOPIC, "topics.name", Scope.OPTION),
        refusal=Refusal(nulls=("configs",)),
        cost=CostBounds(strict_from=6),
    ),
    forwarded(
        DELETE_TOPICS,
        "DeleteTopics",
        "1-6 flexible 4+",
        AnyOf((on_cluster(OP.DELETE), on_topics(OP.DELETE))),
        need(OP.DESCRIBE, TOPIC, "topics.topic_id", Scope.OPTION, when=When.TOPIC_IDS),
        cost=CostBounds(strict_from=5),
    ),
    served(DELETE_RECORDS, "DeleteRecords", "0-2 flexible 2+", on_topics(OP.DELETE), parts=Parts()),
    coordinated(
        INIT_PRODUCER_ID,
        "InitProducerId",
        "0-6 flexible 2+",
        on_transaction(when=When.TRANSACTIONAL),
        need(OP.TWO_PHASE_COMMIT, TRANSACTION, "transactional_id", when=When.TWO_PHASE),
        AnyOf(
            (
                need(
                    OP.WRITE,
                    TOPIC,
                    when=When.NOT_TRANSACTIONAL,
                    is_somewhere=True,
                    code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                ),
                on_cluster(OP.IDEMPOTENT_WRITE, when=When.NOT_TRANSACTIONAL),
            )
        ),
        unstable_from=6,
    ),
    served(
        OFFSET_FOR_LEADER_EPOCH,
        "OffsetForLeaderEpoch",
        "2-4 flexible 4+",
        AnyOf((on_cluster(OP.CLUSTER_ACTION), on_topics(OP.DESCRIBE, "topics.topic"))),
        parts=Parts(),
    ),
    coordinated(
        ADD_PARTITIONS_TO_TXN,
        "AddPartitionsToTxn",
        "0-5 flexible 3+",
        on_transaction("v3_and_below_transactional_id", when=When.OF_CLIENTS),
        need(OP.WRITE, TOPIC, "v3_and_below_topics.name", Scope.EACH, when=When.OF_CLIENTS),
        on_cluster(OP.CLUSTER_ACTION, when=When.OF_BROKERS),
    ),
    coordinated(
        ADD_OFFSETS_TO_TXN,
        "AddOffsetsToTxn",
        "0-4 flexible 3+",
        on_transaction(),
        on_group(OP.READ),
    ),
    coordinated(END_TXN, "EndTxn", "0-5 flexible 3+", on_transaction()),
    served(
        WRITE_TXN_MARKERS,
        "WriteTxnMarkers",
        "1-2 flexible 1+",
        AnyOf((on_cluster(OP.ALTER), on_cluster(OP.CLUSTER_ACTION))),
        cost=CostBounds(is_exempt=True),
    ),
    coordinated(
        TXN_OFFSET_COMMIT,
        "TxnOffsetCommit",
        "0-6 flexible 3+",
        on_transaction(),
        on_group(OP.READ),
        on_topics(OP.READ),
        parts=Parts(),
    ),
    served(
        DESCRIBE_ACLS, "DescribeAcls", "1-3 flexible 2+", on_cluster(OP.DESCRIBE), listener=BOTH
    ),
    forwarded(CREATE_ACLS, "CreateAcls", "1-3 flexible 2+", on_cluster(OP.ALTER)),
    forwarded(DELETE_ACLS, "DeleteAcls", "1-3 flexible 2+", on_cluster(OP.ALTER)),
    served(
        DESCRIBE_CONFIGS,
        "DescribeConfigs",
        "1-4 flexible 4+",
        *on_configs(OP.DESCRIBE_CONFIGS),
        listener=BOTH,
        parts=Parts(),
    ),
    forwarded(ALTER_CONFIGS, "AlterConfigs", "0-2 flexible 2+", *on_configs(OP.ALTER_CONFIGS)),
    served(
        ALTER_REPLICA_LOG_DIRS,
        "AlterReplicaLogDirs",
        "1-2 flexible 2+",
        on_cluster(OP.ALTER),
        refusal=Refusal(elements="dirs.topics"),
    ),
    served(
        DESCRIBE_LOG_DIRS,
        "DescribeLogDirs",
        "1-5 flexible 2+",
        on_cluster(OP.DESCRIBE),
        refusal=Refusal(has_elements=False),
    ),
    served(
        SASL_AUTHENTICATE,
        "SaslAuthenticate",
        "0-2 flexible 2+",
        why_open="it comes before a client is known",
        listener=BOTH,
    ),
    forwarded(
        CREATE_PARTITIONS,
        "CreatePartitions",
        "0-3 flexible 2+",
        on_topics(OP.ALTER),
        cost=CostBounds(strict_from=3),
    ),
    forwarded(
        CREATE_DELEGATION_TOKEN,
        "CreateDelegationToken",
        "1-3 flexible 2+",
        need(OP.CREATE_TOKENS, USER, "owner_principal_name", when=When.OTHER_OWNER),
    ),
    forwarded(
        RENEW_DELEGATION_TOKEN,
        "RenewDelegationToken",
        "1-2 flexible 2+",
        why_open="only a token's owner and renewers renew it",
    ),
    forwarded(
        EXPIRE_DELEGATION_TOKEN,
        "ExpireDelegationToken",
        "1-2 flexible 2+",
        why_open="only a token's owner and renewers expire it",
    ),
    served(
        DESCRIBE_DELEGATION_TOKEN,
        "DescribeDelegationToken",
        "1-3 flexible 2+",
        AnyOf(
            (
                need(OP.DESCRIBE_TOKENS, USER, "", Scope.HIDDEN, when=When.OTHER_TOKENS),
                need(OP.DESCRIBE, TOKEN, "", Scope.HIDDEN, when=When.OTHER_TOKENS),
            )
        ),
        listener=BOTH,
    ),
    coordinated(
        DELETE_GROUPS,
        "DeleteGroups",
        "0-3 flexible 2+",
        on_group(OP.DELETE, "groups_names", Scope.EACH),
        parts=Parts(),
    ),
    forwarded(
        ELECT_LEADERS,
        "ElectLeaders",
        "0-2 flexible 2+",
        on_cluster(OP.ALTER),
        refusal=Refusal(has_both=True),
    ),
    forwarded(
        INCREMENTAL_ALTER_CONFIGS,
        "IncrementalAlterConfigs",
        "0-1 flexible 1+",
        *on_configs(OP.ALTER_CONFIGS),
    ),
    forwarded(
        ALTER_PARTITION_REASSIGNMENTS,
        "AlterPartitionReassignments",
        "0-1 flexible 0+",
        on_cluster(OP.ALTER),
        refusal=Refusal(has_both=True, repeats=("allow_replication_factor_change",)),
    ),
    forwarded(
        LIST_PARTITION_REASSIGNMENTS,
        "ListPartitionReassignments",
        "0 flexible 0+",
        on_cluster(OP.DESCRIBE),
    ),
    coordinated(
        OFFSET_DELETE,
        "OffsetDelete",
        "0",
        on_group(OP.DELETE),
        on_topics(OP.READ),
        parts=Parts(is_served_empty=True),
    ),
    served(
        DESCRIBE_CLIENT_QUOTAS,
        "DescribeClientQuotas",
        "0-1 flexible 1+",
        on_cluster(OP.DESCRIBE_CONFIGS),
    ),
    forwarded(
        ALTER_CLIENT_QUOTAS,
        "AlterClientQuotas",
        "0-1 flexible 1+",
        on_cluster(OP.ALTER_CONFIGS),
        refusal=Refusal(element_repeats=("entity",)),
    ),
    served(
        DESCRIBE_USER_SCRAM_CREDENTIALS,
        "DescribeUserScramCredentials",
        "0 flexible 0+",
        on_cluster(OP.DESCRIBE),
        listener=BOTH,
    ),
    forwarded(
        ALTER_USER_SCRAM_CREDENTIALS,
        "AlterUserScramCredentials",
        "0 flexible 0+",
        on_cluster(OP.ALTER),
        refusal=Refusal(is_unique=True),
    ),
    between_nodes(VOTE, "Vote", "0-2 flexible 0+"),
    between_nodes(BEGIN_QUORUM_EPOCH, "BeginQuorumEpoch", "0-1 flexible 1+"),
    between_nodes(END_QUORUM_EPOCH, "EndQuorumEpoch", "0-1 flexible 1+"),
    forwarded(DESCRIBE_QUORUM, "DescribeQuorum", "0-2 flexible 0+", on_cluster(OP.DESCRIBE)),
    between_nodes(ALTER_PARTITION, "AlterPartition", "2-3 flexible 2+"),
    forwarded(UPDATE_FEATURES, "UpdateFeatures", "0-2 flexible 0+", on_cluster(OP.ALTER)),
    between_nodes(ENVELOPE, "Envelope", "0 flexible 0+"),
    between_nodes(FETCH_SNAPSHOT, "FetchSnapshot", "0-1 flexible 0+"),
    served(
        DESCRIBE_CLUSTER,
        "DescribeCluster",
        "0-2 flexible 0+",
        on_cluster(OP.ALTER, when=When.ON_CONTROLLERS),
        listener=BOTH,
        is_answer_kept=True,
    ),
    served(
        DESCRIBE_PRODUCERS, "DescribeProducers", "0 flexible 0+", on_topics(OP.READ), parts=Parts()
    ),
    between_nodes(BROKER_REGISTRATION, "BrokerRegistration", "0-4 flexible 0+"),
    between_nodes(BROKER_HEARTBEAT, "BrokerHeartbeat", "0-2 flexible 0+"),
    forwarded(
        UNREGISTER_BROKER,
        "UnregisterBroker",
        "0 flexible 0+",
        on_cluster(OP.ALTER),
        cost=CostBounds(records_max=INT32_MAX),
    ),
    coordinated(
        DESCRIBE_TRANSACTIONS,
        "DescribeTransactions",
        "0 flexible 0+",
        need(OP.DESCRIBE, TRANSACTION, "transactional_ids", Scope.EACH),
        need(OP.DESCRIBE, TOPIC, "", Scope.HIDDEN),
        parts=Parts(),
    ),
    coordinated(
        LIST_TRANSACTIONS,
        "ListTransactions",
        "0-2 flexible 0+",
        need(OP.DESCRIBE, TRANSACTION, "", Scope.HIDDEN),
    ),
    between_nodes(ALLOCATE_PRODUCER_IDS, "AllocateProducerIds", "0 flexible 0+"),
    coordinated(
        CONSUMER_GROUP_HEARTBEAT,
        "ConsumerGroupHeartbeat",
        "0-1 flexible 0+",
        on_group(OP.READ),
        on_topics(OP.DESCRIBE, "subscribed_topic_names", Scope.REQUEST),
        need(OP.DESCRIBE, TOPIC, "", Scope.HIDDEN),
    ),
    coordinated(
        CONSUMER_GROUP_DESCRIBE,
        "ConsumerGroupDescribe",
        "0-1 flexible 0+",
        on_group(OP.DESCRIBE, "group_ids", Scope.EACH),
        need(OP.DESCRIBE, TOPIC, "", Scope.EACH),
        parts=Parts(),
    ),
    between_nodes(CONTROLLER_REGISTRATION, "ControllerRegistration", "0 flexible 0+"),
    served(
        GET_TELEMETRY_SUBSCRIPTIONS,
        "GetTelemetrySubscriptions",
        "0 flexible 0+",
        why_open="an operator asked clients for it",
        is_optional=True,
    ),
    served(
        PUSH_TELEMETRY,
        "PushTelemetry",
        "0 flexible 0+",
        why_open="an operator asked clients for it",
        is_optional=True,
    ),
    between_nodes(ASSIGN_REPLICAS_TO_DIRS, "AssignReplicasToDirs", "0 flexible 0+"),
    served(
        LIST_CONFIG_RESOURCES,
        "ListConfigResources",
        "0-1 flexible 0+",
        on_cluster(OP.DESCRIBE_CONFIGS),
    ),
    served(
        DESCRIBE_TOPIC_PARTITIONS,
        "DescribeTopicPartitions",
        "0 flexible 0+",
        on_topics(OP.DESCRIBE),
        need(OP.DESCRIBE, TOPIC, "", Scope.HIDDEN),
    ),
    coordinated(
        SHARE_GROUP_HEARTBEAT,
        "ShareGroupHeartbeat",
        "1 flexible 1+",
        on_group(OP.READ),
        on_topics(OP.DESCRIBE, "subscribed_topic_names", Scope.REQUEST),
    ),
    coordinated(
        SHARE_GROUP_DESCRIBE,
        "ShareGroupDescribe",
        "1 flexible 1+",
        on_group(OP.DESCRIBE, "group_ids", Scope.EACH),
        need(OP.DESCRIBE, TOPIC, "", Scope.EACH),
        parts=Parts(),
    ),
    served(
        SHARE_FETCH,
        "ShareFetch",
        "1-2 flexible 1+",
        on_group(OP.READ),
        on_topics(OP.READ, "topics.topic_id"),
    ),
    served(
        SHARE_ACKNOWLEDGE,
        "ShareAcknowledge",
        "1-2 flexible 1+",
        on_group(OP.READ),
        need(OP.READ, TOPIC, "topics.topic_id", Scope.EACH, when=When.IN_SHARE_SESSION),
    ),
    forwarded(ADD_RAFT_VOTER, "AddRaftVoter", "0-1 flexible 0+", on_cluster(OP.ALTER)),
    forwarded(REMOVE_RAFT_VOTER, "RemoveRaftVoter", "0 flexible 0+", on_cluster(OP.ALTER)),
    between_nodes(UPDATE_RAFT_VOTER, "UpdateRaftVoter", "0 flexible 0+"),
    served(
        INITIALIZE_SHARE_GROUP_STATE,
        "InitializeShareGroupState",
        "0 flexible 0+",
        on_cluster(OP.CLUSTER_ACTION),
        decider=Decider.COORDINATOR,
        cost=CostBounds(is_exempt=True),
    ),
    served(
        READ_SHARE_GROUP_STATE,
        "ReadShareGroupState",
        "0 flexible 0+",
        on_cluster(OP.CLUSTER_ACTION),
        decider=Decider.COORDINATOR,
        cost=CostBounds(is_exempt=True),
    ),
    served(
        WRITE_SHARE_GROUP_STATE,
        "WriteShareGroupState",
        "0-1 flexible 0+",
        on_cluster(OP.CLUSTER_ACTION),
        decider=Decider.COORDINATOR,
        cost=CostBounds(is_exempt=True),
    ),
    served(
        DELETE_SHARE_GROUP_STATE,
        "DeleteShareGroupState",
        "0 flexible 0+",
        on_cluster(OP.CLUSTER_ACTION),
        decider=Decider.COORDINATOR,
        cost=CostBounds(is_exempt=True),
    ),
    served(
        READ_SHARE_GROUP_STATE_SUMMARY,
        "ReadShareGroupStateSummary",
        "0-1 flexible 0+",
        on_cluster(OP.CLUSTER_ACTION),
        decider=Decider.COORDINATOR,
        cost=CostBounds(is_exempt=True),
    ),
    not_served(
        STREAMS_GROUP_HEARTBEAT,
        "StreamsGroupHeartbeat",
        "0-1 flexible 0+",
        on_group(OP.READ),
        on_topics(OP.DESCRIBE, "topology.subtopologies", Scope.REQUEST),
        AnyOf(
            (
                need(OP.CREATE, CLUSTER, "", Scope.OPTION, when=When.CREATING),
                need(OP.CREATE, TOPIC, "", Scope.OPTION, when=When.CREATING),
            )
        ),
        unstable_from=1,
    ),
    not_served(
        STREAMS_GROUP_DESCRIBE,
        "StreamsGroupDescribe",
        "0-1 flexible 0+",
        on_group(OP.DESCRIBE, "group_ids", Scope.EACH),
        need(OP.DESCRIBE, TOPIC, "", Scope.EACH),
        unstable_from=1,
    ),
    coordinated(
        DESCRIBE_SHARE_GROUP_OFFSETS,
        "DescribeShareGroupOffsets",
        "0-1 flexible 0+",
        on_group(OP.DESCRIBE, "groups.group_id", Scope.EACH),
        on_topics(OP.DESCRIBE, "groups.topics.topic_name"),
        parts=Parts(),
    ),
    coordinated(
        ALTER_SHARE_GROUP_OFFSETS,
        "AlterShareGroupOffsets",
        "0 flexible 0+",
        on_group(OP.READ),
        on_topics(OP.READ, "topics.topic_name"),
        parts=Parts(),
    ),
    coordinated(
        DELETE_SHARE_GROUP_OFFSETS,
        "DeleteShareGroupOffsets",
        "0 flexible 0+",
        on_group(OP.DELETE),
        on_topics(OP.READ, "topics.topic_name"),
        parts=Parts(),
    ),
    not_served(
        STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
        "StreamsGroupTopologyDescriptionUpdate",
        "0 flexible 0+",
        on_group(OP.READ),
        unstable_from=0,
    ),
    forwarded(UNREGISTER_CONTROLLER, "UnregisterController", "0 flexible 0+", on_cluster(OP.ALTER)),
    served(DESCRIBE_NODE, "DescribeNode", "0 flexible 0+", on_cluster(OP.DESCRIBE)),
    served(DRAIN_BROKER, "DrainBroker", "0 flexible 0+", on_cluster(OP.ALTER)),
    served(
        DESCRIBE_CLIENT_INSTANCES,
        "DescribeClientInstances",
        "0 flexible 0+",
        on_cluster(OP.DESCRIBE),
    ),
    served(TAIL_CLIENT_METRICS, "TailClientMetrics", "0 flexible 0+", on_cluster(OP.DESCRIBE)),
    served(DESCRIBE_CLEANER, "DescribeCleaner", "0 flexible 0+", on_cluster(OP.DESCRIBE)),
    served(CLEAN_LOGS, "CleanLogs", "0 flexible 0+", on_cluster(OP.ALTER)),
    served(OFFLOAD_LOGS, "OffloadLogs", "0 flexible 0+", on_cluster(OP.ALTER)),
    served(
        DESCRIBE_METADATA_CHANGES,
        "DescribeMetadataChanges",
        "0 flexible 0+",
        on_cluster(OP.DESCRIBE),
        on_cluster(OP.DESCRIBE_CONFIGS),
    ),
    forwarded(WRITE_SNAPSHOT, "WriteSnapshot", "0 flexible 0+", on_cluster(OP.ALTER)),
    served(
        DESCRIBE_QUOTA_USAGE, "DescribeQuotaUsage", "0 flexible 0+", on_cluster(OP.DESCRIBE_CONFIGS)
    ),
    served(
        DESCRIBE_SHARE_DELIVERY,
        "DescribeShareDelivery",
        "0 flexible 0+",
        on_group(OP.DESCRIBE),
        need(OP.DESCRIBE, TOPIC, "", Scope.EACH),
    ),
    served(
        DESCRIBE_SHARE_RECORDS,
        "DescribeShareRecords",
        "0 flexible 0+",
        on_group(OP.DESCRIBE),
        on_topics(OP.DESCRIBE, "topic_name", Scope.REQUEST),
    ),
)

API = {row.key: row for row in _ROWS}
"""The rows of the API table, by API key."""

assert len(API) == len(_ROWS)

BROKER_KEYS = frozenset(
    row.key for row in _ROWS if row.on_broker and row.is_served and not row.is_own
)
"""Keys of Kafka's APIs that every broker serves once it has started."""

FORWARDED_KEYS = frozenset(row.key for row in _ROWS if row.is_forwarded and row.is_served)
"""Keys of the APIs whose requests brokers forward to the active controller."""


@cache
def request_class(key: int) -> type[Message]:
    """Import and return the request class of the API with this key."""
    return message_class(f"{API[key].name}Request")


@cache
def response_class(key: int) -> type[Message]:
    """Import and return the response class of the API with this key."""
    return message_class(f"{API[key].name}Response")


def message_class(name: str) -> type[Message]:
    """Import and return the class of a message, given its name in Kafka."""
    return cast(type[Message], getattr(message_module(name), name))


def message_module(name: str) -> ModuleType:
    """Import and return the module of a message. A module without a file is created in memory."""
    file = f"ottla.wire.messages.{module_name(name)}"
    try:
        return import_module(file)
    except ModuleNotFoundError as missing:
        if missing.name != file:
            raise
        from ottla.wire import generator  # only tests and decoders create messages in memory

        return generator.in_memory(name)
