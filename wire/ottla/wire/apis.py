"""Every API this house knows, one row each: its versions, who serves it, who decides it.

`API` maps Kafka's key to its row.  What a listener may list in ApiVersions is `Api.advertised`:
never a version Kafka still calls unstable, never our own APIs (keys from 20000).  Telemetry (71,
72) is listed only while it is on, and a forwarded API only as far as the active controller speaks
it: that is for the broker to decide.
"""

from enum import Flag, auto
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import cast

from ottla.model.values import frozen
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
ALTER_REPLICA_LOG_DIRS = 34
ALTER_CONFIGS = 33
DESCRIBE_LOG_DIRS = 35
SASL_AUTHENTICATE = 36
CREATE_DELEGATION_TOKEN = 38
RENEW_DELEGATION_TOKEN = 39
EXPIRE_DELEGATION_TOKEN = 40
DESCRIBE_DELEGATION_TOKEN = 41
DELETE_GROUPS = 42
INCREMENTAL_ALTER_CONFIGS = 44
DESCRIBE_CLIENT_QUOTAS = 48
OFFSET_DELETE = 47
DESCRIBE_USER_SCRAM_CREDENTIALS = 50
ALTER_USER_SCRAM_CREDENTIALS = 51
DESCRIBE_QUORUM = 55
DESCRIBE_CLUSTER = 60
DESCRIBE_PRODUCERS = 61
UNREGISTER_BROKER = 64
DESCRIBE_TRANSACTIONS = 65
LIST_TRANSACTIONS = 66
CONSUMER_GROUP_HEARTBEAT = 68
CONSUMER_GROUP_DESCRIBE = 69
GET_TELEMETRY_SUBSCRIPTIONS = 71
PUSH_TELEMETRY = 72
TELEMETRY_API_KEYS = frozenset({GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY})
"""Client telemetry (KIP-714); clients ask only where both are listed."""
LIST_CONFIG_RESOURCES = 74
DESCRIBE_TOPIC_PARTITIONS = 75
DESCRIBE_NODE = 20000
DRAIN_BROKER = 20001
DESCRIBE_CLIENT_INSTANCES = 20002
TAIL_CLIENT_METRICS = 20003
DESCRIBE_CLEANER = 20004
CLEAN_LOGS = 20005
DESCRIBE_QUOTA_USAGE = 20006

FETCH_TOPIC_IDS_FROM = 13
PRODUCE_TOPIC_IDS_FROM = 13
OFFSETS_TOPIC_IDS_FROM = 10
"""The first versions that name topics by ids; the last is of OffsetCommit and OffsetFetch."""

DELETE_TOPICS_STATES_FROM = 6
"""The first version of DeleteTopics that names a topic by its id or its name."""

COORDINATOR_KEYS_FROM = 4
"""The first version of FindCoordinator that asks for several keys at once (KIP-699)."""

ADD_PARTITIONS_OF_BROKERS_FROM = 4
"""The first version of AddPartitionsToTxn that brokers send, for many transactions."""

OWN_KEYS_FROM = 20000
"""Our own admin APIs begin here."""

PRODUCE_ADVERTISED_LOWEST = 0
"""What we say of Produce, though 0 to 2 are refused: librdkafka turns features off when it sees no
overlap with the oldest versions (KAFKA-18659)."""


class ListenerKind(Flag):
    """Who serves an API on a Kafka listener."""

    BROKER = auto()
    CONTROLLER = auto()
    BOTH = BROKER | CONTROLLER


BROKER, CONTROLLER, BOTH = ListenerKind.BROKER, ListenerKind.CONTROLLER, ListenerKind.BOTH


@frozen
class Api:
    """One API; `highest` can be decoded, `latest_stable` is what is offered."""

    key: int
    name: str
    lowest: int
    highest: int
    flexible_from: int | None
    listener: ListenerKind
    unstable_from: int | None = None
    is_forwarded: bool = False
    """Whether a broker lets the active controller decide it."""

    @property
    def on_broker(self) -> bool:
        """Whether a broker's listener serves it."""
        return BROKER in self.listener

    @property
    def latest_stable(self) -> int:
        """The highest version that will not change any more; below `lowest` when there is none."""
        return self.highest if self.unstable_from is None else self.unstable_from - 1

    @property
    def advertised(self) -> range:
        """The versions to list in ApiVersions; empty when the API is not listed."""
        if self.key >= OWN_KEYS_FROM:
            return range(0)
        lowest = PRODUCE_ADVERTISED_LOWEST if self.key == PRODUCE else self.lowest
        return range(lowest, self.latest_stable + 1)

    def serves(self, version: int) -> bool:
        """Return whether a request of this version may be taken up."""
        return self.lowest <= version <= self.latest_stable


@cache
def request_class(key: int) -> type[Message]:
    """Import the class of an API's request."""
    return message_class(f"{API[key].name}Request")


@cache
def response_class(key: int) -> type[Message]:
    """Import the class of an API's response."""
    return message_class(f"{API[key].name}Response")


def message_class(name: str) -> type[Message]:
    """Import a message's class by Kafka's name of it."""
    return cast(type[Message], getattr(message_module(name), name))


def message_module(name: str) -> ModuleType:
    """Import the module of a message, or make it in memory if nothing serves the message yet."""
    file = f"ottla.wire.messages.{module_name(name)}"
    try:
        return import_module(file)
    except ModuleNotFoundError as missing:
        if missing.name != file:
            raise
        from ottla.wire import generator  # no program but tests and decoders makes messages

        return generator.in_memory(name)


_ROWS = (
    # key, name, lowest, highest, flexible from, listener.  ApiVersions 5 (KIP-1242) is offered
    # although Kafka's schema calls it unstable: Java 4.4 asks with it first.
    Api(PRODUCE, "Produce", 3, 13, 9, BROKER),
    Api(FETCH, "Fetch", 4, 18, 12, BOTH),
    Api(LIST_OFFSETS, "ListOffsets", 1, 11, 6, BROKER),
    Api(METADATA, "Metadata", 0, 13, 9, BROKER),
    Api(OFFSET_COMMIT, "OffsetCommit", 2, 10, 8, BROKER),
    Api(OFFSET_FETCH, "OffsetFetch", 1, 10, 6, BROKER),
    Api(FIND_COORDINATOR, "FindCoordinator", 0, 6, 3, BROKER),
    Api(JOIN_GROUP, "JoinGroup", 0, 9, 6, BROKER),
    Api(HEARTBEAT, "Heartbeat", 0, 4, 4, BROKER),
    Api(LEAVE_GROUP, "LeaveGroup", 0, 5, 4, BROKER),
    Api(SYNC_GROUP, "SyncGroup", 0, 5, 4, BROKER),
    Api(DESCRIBE_GROUPS, "DescribeGroups", 0, 6, 5, BROKER),
    Api(LIST_GROUPS, "ListGroups", 0, 5, 3, BROKER),
    Api(SASL_HANDSHAKE, "SaslHandshake", 0, 1, None, BOTH),
    Api(API_VERSIONS, "ApiVersions", 0, 5, 3, BOTH),
    Api(CREATE_TOPICS, "CreateTopics", 2, 7, 5, BOTH, is_forwarded=True),
    Api(DELETE_TOPICS, "DeleteTopics", 1, 6, 4, BOTH, is_forwarded=True),
    Api(DELETE_RECORDS, "DeleteRecords", 0, 2, 2, BROKER),
    Api(INIT_PRODUCER_ID, "InitProducerId", 0, 6, 2, BROKER, unstable_from=6),
    Api(OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 2, 4, 4, BROKER),
    Api(ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", 0, 5, 3, BROKER),
    Api(ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", 0, 4, 3, BROKER),
    Api(END_TXN, "EndTxn", 0, 5, 3, BROKER),
    Api(27, "WriteTxnMarkers", 1, 2, 1, BROKER),
    Api(28, "TxnOffsetCommit", 0, 6, 3, BROKER),
    Api(29, "DescribeAcls", 1, 3, 2, BOTH),
    Api(30, "CreateAcls", 1, 3, 2, BOTH, is_forwarded=True),
    Api(31, "DeleteAcls", 1, 3, 2, BOTH, is_forwarded=True),
    Api(DESCRIBE_CONFIGS, "DescribeConfigs", 1, 4, 4, BOTH),
    Api(ALTER_CONFIGS, "AlterConfigs", 0, 2, 2, BOTH, is_forwarded=True),
    Api(ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", 1, 2, 2, BROKER),
    Api(DESCRIBE_LOG_DIRS, "DescribeLogDirs", 1, 5, 2, BROKER),
    Api(SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, 2, BOTH),
    Api(37, "CreatePartitions", 0, 3, 2, BOTH, is_forwarded=True),
    Api(CREATE_DELEGATION_TOKEN, "CreateDelegationToken", 1, 3, 2, BOTH, is_forwarded=True),
    Api(RENEW_DELEGATION_TOKEN, "RenewDelegationToken", 1, 2, 2, BOTH, is_forwarded=True),
    Api(EXPIRE_DELEGATION_TOKEN, "ExpireDelegationToken", 1, 2, 2, BOTH, is_forwarded=True),
    Api(DESCRIBE_DELEGATION_TOKEN, "DescribeDelegationToken", 1, 3, 2, BOTH),
    Api(DELETE_GROUPS, "DeleteGroups", 0, 3, 2, BROKER),
    Api(43, "ElectLeaders", 0, 2, 2, BOTH, is_forwarded=True),
    Api(INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 0, 1, 1, BOTH, is_forwarded=True),
    Api(45, "AlterPartitionReassignments", 0, 1, 0, BOTH, is_forwarded=True),
    Api(46, "ListPartitionReassignments", 0, 0, 0, BOTH, is_forwarded=True),
    Api(OFFSET_DELETE, "OffsetDelete", 0, 0, None, BROKER),
    Api(DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", 0, 1, 1, BROKER),
    Api(49, "AlterClientQuotas", 0, 1, 1, BOTH, is_forwarded=True),
    Api(DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", 0, 0, 0, BOTH),
    Api(
        ALTER_USER_SCRAM_CREDENTIALS,
        "AlterUserScramCredentials",
        0,
        0,
        0,
        BOTH,
        is_forwarded=True,
    ),
    Api(52, "Vote", 0, 2, 0, CONTROLLER),
    Api(53, "BeginQuorumEpoch", 0, 1, 1, CONTROLLER),
    Api(54, "EndQuorumEpoch", 0, 1, 1, CONTROLLER),
    Api(DESCRIBE_QUORUM, "DescribeQuorum", 0, 2, 0, BOTH, is_forwarded=True),
    Api(56, "AlterPartition", 2, 3, 2, CONTROLLER),
    Api(57, "UpdateFeatures", 0, 2, 0, BOTH, is_forwarded=True),
    Api(58, "Envelope", 0, 0, 0, CONTROLLER),
    Api(59, "FetchSnapshot", 0, 1, 0, CONTROLLER),
    Api(DESCRIBE_CLUSTER, "DescribeCluster", 0, 2, 0, BOTH),
    Api(DESCRIBE_PRODUCERS, "DescribeProducers", 0, 0, 0, BROKER),
    Api(62, "BrokerRegistration", 0, 4, 0, CONTROLLER),
    Api(63, "BrokerHeartbeat", 0, 2, 0, CONTROLLER),
    Api(UNREGISTER_BROKER, "UnregisterBroker", 0, 0, 0, BOTH, is_forwarded=True),
    Api(DESCRIBE_TRANSACTIONS, "DescribeTransactions", 0, 0, 0, BROKER),
    Api(LIST_TRANSACTIONS, "ListTransactions", 0, 2, 0, BROKER),
    Api(67, "AllocateProducerIds", 0, 0, 0, CONTROLLER, is_forwarded=True),
    Api(CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", 0, 1, 0, BROKER),
    Api(CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", 0, 1, 0, BROKER),
    Api(70, "ControllerRegistration", 0, 0, 0, CONTROLLER),
    Api(GET_TELEMETRY_SUBSCRIPTIONS, "GetTelemetrySubscriptions", 0, 0, 0, BROKER),
    Api(PUSH_TELEMETRY, "PushTelemetry", 0, 0, 0, BROKER),
    Api(73, "AssignReplicasToDirs", 0, 0, 0, CONTROLLER),
    Api(LIST_CONFIG_RESOURCES, "ListConfigResources", 0, 1, 0, BROKER),
    Api(DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", 0, 0, 0, BROKER),
    Api(76, "ShareGroupHeartbeat", 1, 1, 1, BROKER),
    Api(77, "ShareGroupDescribe", 1, 1, 1, BROKER),
    Api(78, "ShareFetch", 1, 2, 1, BROKER),
    Api(79, "ShareAcknowledge", 1, 2, 1, BROKER),
    Api(80, "AddRaftVoter", 0, 1, 0, BOTH, is_forwarded=True),
    Api(81, "RemoveRaftVoter", 0, 0, 0, BOTH, is_forwarded=True),
    Api(82, "UpdateRaftVoter", 0, 0, 0, CONTROLLER),
    Api(83, "InitializeShareGroupState", 0, 0, 0, BROKER),
    Api(84, "ReadShareGroupState", 0, 0, 0, BROKER),
    Api(85, "WriteShareGroupState", 0, 1, 0, BROKER),
    Api(86, "DeleteShareGroupState", 0, 0, 0, BROKER),
    Api(87, "ReadShareGroupStateSummary", 0, 1, 0, BROKER),
    Api(88, "StreamsGroupHeartbeat", 0, 1, 0, BROKER, unstable_from=1),
    Api(89, "StreamsGroupDescribe", 0, 1, 0, BROKER, unstable_from=1),
    Api(90, "DescribeShareGroupOffsets", 0, 1, 0, BROKER),
    Api(91, "AlterShareGroupOffsets", 0, 0, 0, BROKER),
    Api(92, "DeleteShareGroupOffsets", 0, 0, 0, BROKER),
    Api(93, "StreamsGroupTopologyDescriptionUpdate", 0, 0, 0, BROKER, unstable_from=0),
    Api(DESCRIBE_NODE, "DescribeNode", 0, 0, 0, BROKER),
    Api(DRAIN_BROKER, "DrainBroker", 0, 0, 0, BROKER),
    Api(DESCRIBE_CLIENT_INSTANCES, "DescribeClientInstances", 0, 0, 0, BROKER),
    Api(TAIL_CLIENT_METRICS, "TailClientMetrics", 0, 0, 0, BROKER),
    Api(DESCRIBE_CLEANER, "DescribeCleaner", 0, 0, 0, BROKER),
    Api(CLEAN_LOGS, "CleanLogs", 0, 0, 0, BROKER),
    Api(DESCRIBE_QUOTA_USAGE, "DescribeQuotaUsage", 0, 0, 0, BROKER),
)

API = {row.key: row for row in _ROWS}

assert len(API) == len(_ROWS)
