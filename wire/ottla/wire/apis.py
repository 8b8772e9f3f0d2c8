"""Every API this house knows, one row each: its versions, who serves it, who decides it.

`API` maps Kafka's key to its row.  What a listener may list in ApiVersions is `Api.advertised`:
never a version Kafka still calls unstable, never our own APIs (keys from 20000).  Telemetry (71,
72) is listed only while it is on, and a forwarded API only as far as the active controller speaks
it: that is for the broker to decide.
"""

from dataclasses import dataclass
from enum import Flag, auto
from importlib import import_module
from typing import cast

from ottla.wire.codec_types import Message
from ottla.wire.schema import module_name

PRODUCE = 0
API_VERSIONS = 18
GET_TELEMETRY_SUBSCRIPTIONS = 71
PUSH_TELEMETRY = 72
DESCRIBE_NODE = 20000
DRAIN_BROKER = 20001
DESCRIBE_CLIENT_INSTANCES = 20002
TAIL_CLIENT_METRICS = 20003

OWN_KEYS_FROM = 20000
"""Our own admin APIs begin here."""

PRODUCE_ADVERTISED_LOWEST = 0
"""What we say of Produce, though 0 to 2 are refused: librdkafka turns features off when it sees no
overlap with the oldest versions (KAFKA-18659)."""


class Listener(Flag):
    """Who serves an API on a Kafka listener."""

    BROKER = auto()
    CONTROLLER = auto()
    BOTH = BROKER | CONTROLLER


BROKER, CONTROLLER, BOTH = Listener.BROKER, Listener.CONTROLLER, Listener.BOTH


@dataclass(frozen=True, slots=True)
class Api:
    """One API; `highest` can be decoded, `latest_stable` is what is offered."""

    key: int
    name: str
    lowest: int
    highest: int
    flexible_from: int | None
    listener: Listener
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


def request_class(key: int) -> type[Message]:
    """Import the class of an API's request."""
    return message_class(f"{API[key].name}Request")


def response_class(key: int) -> type[Message]:
    """Import the class of an API's response."""
    return message_class(f"{API[key].name}Response")


def message_class(name: str) -> type[Message]:
    """Import a message's class by Kafka's name of it."""
    module = import_module(f"ottla.wire.messages.{module_name(name)}")
    return cast(type[Message], getattr(module, name))


_ROWS = (
    # key, name, lowest, highest, flexible from, listener.  ApiVersions 5 (KIP-1242) is offered
    # although Kafka's schema calls it unstable: Java 4.4 asks with it first.
    Api(0, "Produce", 3, 13, 9, BROKER),
    Api(1, "Fetch", 4, 18, 12, BOTH),
    Api(2, "ListOffsets", 1, 11, 6, BROKER),
    Api(3, "Metadata", 0, 13, 9, BROKER),
    Api(8, "OffsetCommit", 2, 10, 8, BROKER),
    Api(9, "OffsetFetch", 1, 10, 6, BROKER),
    Api(10, "FindCoordinator", 0, 6, 3, BROKER),
    Api(11, "JoinGroup", 0, 9, 6, BROKER),
    Api(12, "Heartbeat", 0, 4, 4, BROKER),
    Api(13, "LeaveGroup", 0, 5, 4, BROKER),
    Api(14, "SyncGroup", 0, 5, 4, BROKER),
    Api(15, "DescribeGroups", 0, 6, 5, BROKER),
    Api(16, "ListGroups", 0, 5, 3, BROKER),
    Api(17, "SaslHandshake", 0, 1, None, BOTH),
    Api(18, "ApiVersions", 0, 5, 3, BOTH),
    Api(19, "CreateTopics", 2, 7, 5, BOTH, is_forwarded=True),
    Api(20, "DeleteTopics", 1, 6, 4, BOTH, is_forwarded=True),
    Api(21, "DeleteRecords", 0, 2, 2, BROKER),
    Api(22, "InitProducerId", 0, 6, 2, BROKER, unstable_from=6),
    Api(23, "OffsetForLeaderEpoch", 2, 4, 4, BROKER),
    Api(24, "AddPartitionsToTxn", 0, 5, 3, BROKER),
    Api(25, "AddOffsetsToTxn", 0, 4, 3, BROKER),
    Api(26, "EndTxn", 0, 5, 3, BROKER),
    Api(27, "WriteTxnMarkers", 1, 2, 1, BROKER),
    Api(28, "TxnOffsetCommit", 0, 6, 3, BROKER),
    Api(29, "DescribeAcls", 1, 3, 2, BOTH),
    Api(30, "CreateAcls", 1, 3, 2, BOTH, is_forwarded=True),
    Api(31, "DeleteAcls", 1, 3, 2, BOTH, is_forwarded=True),
    Api(32, "DescribeConfigs", 1, 4, 4, BOTH),
    Api(33, "AlterConfigs", 0, 2, 2, BOTH, is_forwarded=True),
    Api(34, "AlterReplicaLogDirs", 1, 2, 2, BROKER),
    Api(35, "DescribeLogDirs", 1, 5, 2, BROKER),
    Api(36, "SaslAuthenticate", 0, 2, 2, BOTH),
    Api(37, "CreatePartitions", 0, 3, 2, BOTH, is_forwarded=True),
    Api(38, "CreateDelegationToken", 1, 3, 2, BOTH, is_forwarded=True),
    Api(39, "RenewDelegationToken", 1, 2, 2, BOTH, is_forwarded=True),
    Api(40, "ExpireDelegationToken", 1, 2, 2, BOTH, is_forwarded=True),
    Api(41, "DescribeDelegationToken", 1, 3, 2, BOTH),
    Api(42, "DeleteGroups", 0, 3, 2, BROKER),
    Api(43, "ElectLeaders", 0, 2, 2, BOTH, is_forwarded=True),
    Api(44, "IncrementalAlterConfigs", 0, 1, 1, BOTH, is_forwarded=True),
    Api(45, "AlterPartitionReassignments", 0, 1, 0, BOTH, is_forwarded=True),
    Api(46, "ListPartitionReassignments", 0, 0, 0, BOTH, is_forwarded=True),
    Api(47, "OffsetDelete", 0, 0, None, BROKER),
    Api(48, "DescribeClientQuotas", 0, 1, 1, BROKER),
    Api(49, "AlterClientQuotas", 0, 1, 1, BOTH, is_forwarded=True),
    Api(50, "DescribeUserScramCredentials", 0, 0, 0, BOTH),
    Api(51, "AlterUserScramCredentials", 0, 0, 0, BOTH, is_forwarded=True),
    Api(52, "Vote", 0, 2, 0, CONTROLLER),
    Api(53, "BeginQuorumEpoch", 0, 1, 1, CONTROLLER),
    Api(54, "EndQuorumEpoch", 0, 1, 1, CONTROLLER),
    Api(55, "DescribeQuorum", 0, 2, 0, BOTH, is_forwarded=True),
    Api(56, "AlterPartition", 2, 3, 2, CONTROLLER),
    Api(57, "UpdateFeatures", 0, 2, 0, BOTH, is_forwarded=True),
    Api(58, "Envelope", 0, 0, 0, CONTROLLER),
    Api(59, "FetchSnapshot", 0, 1, 0, CONTROLLER),
    Api(60, "DescribeCluster", 0, 2, 0, BOTH),
    Api(61, "DescribeProducers", 0, 0, 0, BROKER),
    Api(62, "BrokerRegistration", 0, 4, 0, CONTROLLER),
    Api(63, "BrokerHeartbeat", 0, 2, 0, CONTROLLER),
    Api(64, "UnregisterBroker", 0, 0, 0, BOTH, is_forwarded=True),
    Api(65, "DescribeTransactions", 0, 0, 0, BROKER),
    Api(66, "ListTransactions", 0, 2, 0, BROKER),
    Api(67, "AllocateProducerIds", 0, 0, 0, CONTROLLER, is_forwarded=True),
    Api(68, "ConsumerGroupHeartbeat", 0, 1, 0, BROKER),
    Api(69, "ConsumerGroupDescribe", 0, 1, 0, BROKER),
    Api(70, "ControllerRegistration", 0, 0, 0, CONTROLLER),
    Api(71, "GetTelemetrySubscriptions", 0, 0, 0, BROKER),
    Api(72, "PushTelemetry", 0, 0, 0, BROKER),
    Api(73, "AssignReplicasToDirs", 0, 0, 0, CONTROLLER),
    Api(74, "ListConfigResources", 0, 1, 0, BROKER),
    Api(75, "DescribeTopicPartitions", 0, 0, 0, BROKER),
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
)

API = {row.key: row for row in _ROWS}

assert len(API) == len(_ROWS)
