"""The rows of APIs agree with Kafka's code: operations, and which APIs are forwarded."""

import re
from pathlib import Path

import pytest

from ottla.model.security.acls import OPERATIONS
from ottla.wire import schema
from ottla.wire.api import AUTHORIZATION_CODES, Api, Decider, Scope
from ottla.wire.apis import API, request_class
from ottla.wire.codec_types import Message
from ottla.wire.rpc_needs import RPC_NEEDS
from ottla.wire.schema import StructSchema

ROOT = Path(__file__).parents[2]

NOTHING: set[str] = set()
FORWARDED = {19, 20, 30, 31, 33, *range(37, 41), *range(43, 47), 49, 51, 55, 57, 64, 80, 81, 94}
"""The APIs that Kafka's brokers forward, besides those that only nodes send."""
OF_NODES = (
    "Vote",
    "BeginQuorumEpoch",
    "EndQuorumEpoch",
    "FetchSnapshot",
    "AlterPartition",
    "BrokerRegistration",
    "BrokerHeartbeat",
    "ControllerRegistration",
    "AllocateProducerIds",
    "AssignReplicasToDirs",
    "UpdateRaftVoter",
    "Envelope",
)
OPEN = (
    "ApiVersions",
    "SaslHandshake",
    "SaslAuthenticate",
    "GetTelemetrySubscriptions",
    "PushTelemetry",
    "RenewDelegationToken",
    "ExpireDelegationToken",
)
SHEET: dict[str, set[str]] = {
    "Produce": {"Topic Write", "TransactionalId Write"},
    "Fetch": {"Cluster ClusterAction", "Topic Read"},
    "ListOffsets": {"Topic Describe"},
    "Metadata": {"Topic Describe", "Cluster Create", "Topic Create"},
    "DescribeTopicPartitions": {"Topic Describe"},
    "OffsetCommit": {"Group Read", "Topic Read"},
    "TxnOffsetCommit": {"Group Read", "Topic Read", "TransactionalId Write"},
    "OffsetFetch": {"Group Describe", "Topic Describe"},
    "FindCoordinator": {"Group Describe", "TransactionalId Describe", "Cluster ClusterAction"},
    "JoinGroup": {"Group Read"},
    "SyncGroup": {"Group Read"},
    "Heartbeat": {"Group Read"},
    "LeaveGroup": {"Group Read"},
    "ConsumerGroupHeartbeat": {"Group Read", "Topic Describe"},
    "ShareGroupHeartbeat": {"Group Read", "Topic Describe"},
    "StreamsGroupHeartbeat": {
        "Group Read",
        "Topic Describe",
        "Cluster Create",
        "Topic Create",
    },
    "DescribeGroups": {"Group Describe"},
    "ConsumerGroupDescribe": {"Group Describe", "Topic Describe"},
    "ShareGroupDescribe": {"Group Describe", "Topic Describe"},
    "StreamsGroupDescribe": {"Group Describe", "Topic Describe"},
    "ListGroups": {"Cluster Describe", "Group Describe"},
    "DeleteGroups": {"Group Delete"},
    "OffsetDelete": {"Group Delete", "Topic Read"},
    "ShareFetch": {"Group Read", "Topic Read"},
    "ShareAcknowledge": {"Group Read", "Topic Read"},
    "InitializeShareGroupState": {"Cluster ClusterAction"},
    "ReadShareGroupState": {"Cluster ClusterAction"},
    "WriteShareGroupState": {"Cluster ClusterAction"},
    "DeleteShareGroupState": {"Cluster ClusterAction"},
    "ReadShareGroupStateSummary": {"Cluster ClusterAction"},
    "DescribeShareGroupOffsets": {"Group Describe", "Topic Describe"},
    "AlterShareGroupOffsets": {"Group Read", "Topic Read"},
    "DeleteShareGroupOffsets": {"Group Delete", "Topic Read"},
    "CreateTopics": {"Cluster Create", "Topic Create", "Topic DescribeConfigs"},
    "DeleteTopics": {"Cluster Delete", "Topic Delete", "Topic Describe"},
    "CreatePartitions": {"Topic Alter"},
    "DeleteRecords": {"Topic Delete"},
    "DescribeConfigs": {
        "Topic DescribeConfigs",
        "Group DescribeConfigs",
        "Cluster DescribeConfigs",
    },
    "ListConfigResources": {"Cluster DescribeConfigs"},
    "AlterConfigs": {"Topic AlterConfigs", "Group AlterConfigs", "Cluster AlterConfigs"},
    "IncrementalAlterConfigs": {
        "Topic AlterConfigs",
        "Group AlterConfigs",
        "Cluster AlterConfigs",
    },
    "DescribeClientQuotas": {"Cluster DescribeConfigs"},
    "AlterClientQuotas": {"Cluster AlterConfigs"},
    "DescribeUserScramCredentials": {"Cluster Describe"},
    "AlterUserScramCredentials": {"Cluster Alter"},
    "DescribeAcls": {"Cluster Describe"},
    "CreateAcls": {"Cluster Alter"},
    "DeleteAcls": {"Cluster Alter"},
    "InitProducerId": {
        "TransactionalId Write",
        "TransactionalId TwoPhaseCommit",
        "Cluster IdempotentWrite",
        "Topic Write",
    },
    "AddPartitionsToTxn": {"TransactionalId Write", "Topic Write", "Cluster ClusterAction"},
    "AddOffsetsToTxn": {"TransactionalId Write", "Group Read"},
    "EndTxn": {"TransactionalId Write"},
    "WriteTxnMarkers": {"Cluster Alter", "Cluster ClusterAction"},
    "DescribeTransactions": {"TransactionalId Describe", "Topic Describe"},
    "ListTransactions": {"TransactionalId Describe"},
    "DescribeProducers": {"Topic Read"},
    "OffsetForLeaderEpoch": {"Cluster ClusterAction", "Topic Describe"},
    "AlterReplicaLogDirs": {"Cluster Alter"},
    "DescribeLogDirs": {"Cluster Describe"},
    "ElectLeaders": {"Cluster Alter"},
    "AlterPartitionReassignments": {"Cluster Alter"},
    "UnregisterBroker": {"Cluster Alter"},
    "UpdateFeatures": {"Cluster Alter"},
    "AddRaftVoter": {"Cluster Alter"},
    "RemoveRaftVoter": {"Cluster Alter"},
    "UnregisterController": {"Cluster Alter"},
    "ListPartitionReassignments": {"Cluster Describe"},
    "DescribeQuorum": {"Cluster Describe"},
    "DescribeCluster": {"Cluster Alter"},
    **{name: {"Cluster ClusterAction"} for name in OF_NODES},
    **dict.fromkeys(OPEN, NOTHING),
    "CreateDelegationToken": {"User CreateTokens"},
    "DescribeDelegationToken": {"DelegationToken Describe", "User DescribeTokens"},
    "StreamsGroupTopologyDescriptionUpdate": {"Group Read"},
    "DescribeNode": {"Cluster Describe"},
    "DrainBroker": {"Cluster Alter"},
    "DescribeClientInstances": {"Cluster Describe"},
    "TailClientMetrics": {"Cluster Describe"},
    "DescribeCleaner": {"Cluster Describe"},
    "CleanLogs": {"Cluster Alter"},
    "OffloadLogs": {"Cluster Alter"},
    "DescribeMetadataChanges": {"Cluster Describe", "Cluster DescribeConfigs"},
    "DescribeQuotaUsage": {"Cluster DescribeConfigs"},
    "WriteSnapshot": {"Cluster Alter"},
    "DescribeShareDelivery": {"Group Describe", "Topic Describe"},
    "DescribeShareRecords": {"Group Describe", "Topic Describe"},
}
"""Operations in Kafka's own code (KafkaApis, ControllerApis, AclApis), and in ours."""


def has_field(kind: type[Message], path: str) -> bool:
    """Return whether a message has a field, which may lie in the elements of a list."""
    struct: StructSchema | None = schema.load(kind.SCHEMA)[kind.__name__].root
    for name in path.split("."):
        found = [field for field in struct.fields if field.name == name] if struct else []
        if not found:
            return False
        struct = found[0].struct
    return True


def words(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


@pytest.mark.parametrize("key", sorted(API))
def test_every_api_needs_what_the_sheet_says(key: int) -> None:
    row = API[key]
    found = {f"{words(one.resource.name)} {words(one.operation.name)}" for one in row.single_needs}
    assert found == SHEET[API[key].name]


def test_no_row_is_left_over() -> None:
    assert set(SHEET) == {api.name for api in API.values()}


@pytest.mark.parametrize("row", API.values(), ids=lambda row: row.name)
def test_an_api_that_needs_nothing_says_why(row: Api) -> None:
    assert bool(row.needs) != bool(row.why_open)


def test_our_own_requests_all_need_something() -> None:
    assert all(row.needs for row in API.values() if row.is_own)


def test_forwarded_apis_are_those_of_kafka() -> None:
    found = {key for key, api in API.items() if api.is_forwarded and not api.is_own}
    assert found == FORWARDED


def test_the_controller_decides_what_is_forwarded() -> None:
    for row in API.values():
        if row.on_broker:
            assert (row.decider is Decider.CONTROLLER) == row.is_forwarded


@pytest.mark.parametrize("row", API.values(), ids=lambda row: row.name)
def test_operations_are_those_that_the_resource_has(row: Api) -> None:
    for need in row.single_needs:
        # Kafka asks Cluster Delete too, which no entry but All can give.
        is_known = need.operation in OPERATIONS[need.resource]
        assert is_known or (need.operation.name, need.resource.name) == ("DELETE", "CLUSTER")
        assert need.code in AUTHORIZATION_CODES.values()


@pytest.mark.parametrize("row", API.values(), ids=lambda row: row.name)
def test_a_resource_is_named_by_a_field_that_the_request_has(row: Api) -> None:
    for need in row.single_needs:
        if need.named_by:
            assert has_field(request_class(row.key), need.named_by), need.named_by
        else:
            is_whole = need.scope is Scope.REQUEST
            assert not is_whole or need.is_somewhere or need.resource.name == "CLUSTER"


def test_every_grpc_method_has_a_row() -> None:
    """The methods are read from the services' definitions, so that none can be added without."""
    paths = set()
    for file in sorted((ROOT / "proto/ottla/proto").glob("*.proto")):
        text = file.read_text()
        package = re.search(r"^package ([\w.]+);", text, re.MULTILINE)
        for service, body in re.findall(r"^service (\w+) \{(.*?)^\}", text, re.M | re.S):
            assert package is not None
            paths |= {
                f"/{package[1]}.{service}/{method}" for method in re.findall(r"\brpc (\w+)", body)
            }
    assert paths == set(RPC_NEEDS)
