"""A certificate authenticates its own node, and no other."""

from dataclasses import replace
from uuid import uuid4

import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from ottla.controller.node_identities import SENDER_FIELDS, NodeIdentities, accept_any_caller
from ottla.jepsen.in_memory_controller import registration
from ottla.metadata.acl_table import NO_ACLS
from ottla.metadata.image import EMPTY, BrokerRegistration, MetadataImage
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.security.acls import (
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.settings.security.authorizer import STANDARD_AUTHORIZER, AuthorizerConfig
from ottla.proto import controller_pb2, quorum_pb2
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet
from ottla.rpc import controller_methods
from ottla.rpc.caller import UNKNOWN_CALLER, Caller
from ottla.rpc.cluster_id import CLUSTER_ID
from ottla.rpc.controller_methods import FORWARD, HEARTBEAT, REGISTER
from ottla.rpc.method import RpcMethod
from ottla.rpc.quorum_codec import QUORUM_METHODS

VOTERS = VoterSet(
    tuple(
        Voter(id=NodeId(number), endpoints=(VoterEndpoint("CONTROLLER", f"c{number}.example", 1),))
        for number in (1, 2)
    )
)
FETCH = "/ottla.quorum.Quorum/Fetch"
VOTE = "/ottla.quorum.Quorum/Vote"


def of_host(host: str) -> Caller:
    return Caller(
        host="10.0.0.1",
        principal=f"User:CN={host}",
        is_authenticated=True,
        names=frozenset({host}),
    )


def of_node(*ids: int) -> Caller:
    node_ids = frozenset(map(NodeId, ids))
    return replace(of_host("any.example"), principal="User:CN=any", node_ids=node_ids)


def image_of(*brokers: tuple[int, str]) -> MetadataImage:
    image = EMPTY
    for number, principal in brokers:
        broker = BrokerRegistration(
            id=NodeId(number), epoch=1, incarnation_id=uuid4(), principal=principal
        )
        image = replace(image, brokers=image.brokers.set(broker.id, broker))
    return image


def is_admitted(
    path: str,
    request: Message,
    caller: Caller,
    image: MetadataImage = EMPTY,
    authorizer: StandardAuthorizer | None = None,
) -> bool:
    try:
        NodeIdentities(lambda: VOTERS, lambda: image, authorizer).admit(path, request, caller)
    except RefusedError as refusal:
        assert refusal.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return False
    return True


def vote(candidate: int) -> Message:
    return quorum_pb2.VoteRequest(replica_id=candidate)


def test_every_method_among_nodes_says_who_sends_it() -> None:
    methods = [one for one in vars(controller_methods).values() if isinstance(one, RpcMethod)]
    methods += [CLUSTER_ID, *(one.method for one in QUORUM_METHODS.values())]
    assert {one.path for one in methods} == set(SENDER_FIELDS)
    for method in methods:
        field = SENDER_FIELDS[method.path]
        assert not field or field in method.request_class.DESCRIPTOR.fields_by_name


@pytest.mark.parametrize("path", SENDER_FIELDS)
def test_without_a_certificate_nothing_is_admitted(path: str) -> None:
    assert not is_admitted(path, vote(1), UNKNOWN_CALLER)


def test_a_certificate_of_a_voters_host_speaks_for_that_voter_alone() -> None:
    assert is_admitted(VOTE, vote(1), of_host("c1.example"))
    assert not is_admitted(VOTE, vote(2), of_host("c1.example"))
    assert not is_admitted(VOTE, vote(1), of_host("b4.example"))


def test_a_certificate_that_names_ids_speaks_for_these_alone() -> None:
    assert is_admitted(VOTE, vote(1), of_node(1))
    assert not is_admitted(VOTE, vote(2), of_node(1))
    assert not is_admitted(
        VOTE, vote(1), replace(of_host("c1.example"), node_ids=of_node(2).node_ids)
    )
    fetch = quorum_pb2.FetchRequest(replica_id=7)
    assert is_admitted(FETCH, fetch, of_node(7, 8))
    assert not is_admitted(FETCH, fetch, of_node(8))


def test_a_voter_changes_its_own_entry_alone() -> None:
    for name, request in (
        ("AddVoter", quorum_pb2.AddVoterRequest(replica_id=1)),
        ("RemoveVoter", quorum_pb2.RemoveVoterRequest(replica_id=1)),
        ("UpdateVoter", quorum_pb2.UpdateVoterRequest(replica_id=1)),
        ("DescribeReplica", quorum_pb2.DescribeReplicaRequest(leader_id=1)),
    ):
        path = f"/ottla.quorum.Quorum/{name}"
        assert is_admitted(path, request, of_host("c1.example"))
        assert not is_admitted(path, request, of_host("c2.example"))
        assert is_admitted(path, request, of_node(1))
        assert not is_admitted(path, request, of_node(2))


def test_a_broker_belongs_to_the_certificate_that_registered_it() -> None:
    image = image_of((4, "User:CN=b4.example"))
    for path, request in (
        (FETCH, quorum_pb2.FetchRequest(replica_id=4)),
        (HEARTBEAT.path, controller_pb2.HeartbeatRequest(broker_id=4)),
    ):
        assert is_admitted(path, request, of_host("b4.example"), image)
        assert not is_admitted(path, request, of_host("b5.example"), image)
        assert is_admitted(path, request, of_host("b5.example"), EMPTY)
        assert is_admitted(path, request, of_host("b5.example"), image_of((4, "")))


def test_requests_of_clients_are_believed_of_registered_brokers_alone() -> None:
    image = image_of((4, "User:CN=b4.example"))
    forward = controller_pb2.ForwardRequest(principal="User:admin")
    assert is_admitted(FORWARD.path, forward, of_host("b4.example"), image)
    assert is_admitted(FORWARD.path, forward, of_node(4), image)
    assert not is_admitted(FORWARD.path, forward, of_host("c1.example"), image)
    assert not is_admitted(FORWARD.path, forward, of_node(5), image)


def test_the_controller_writes_down_as_whom_a_broker_registers() -> None:
    request = registration(4)
    request.principal, request.is_named_by_certificate = "User:admin", True
    assert is_admitted(REGISTER.path, request, of_host("b4.example"))
    assert (request.principal, request.is_named_by_certificate) == ("User:CN=b4.example", False)
    assert is_admitted(REGISTER.path, request, of_node(4))
    assert request.is_named_by_certificate
    accept_any_caller(REGISTER.path, request, UNKNOWN_CALLER)
    assert (request.principal, request.is_named_by_certificate) == ("", False)


def test_where_acls_decide_a_certificate_needs_cluster_action_besides() -> None:
    super_users = frozenset({"User:CN=c1.example"})
    config = AuthorizerConfig(class_name=STANDARD_AUTHORIZER, super_users=super_users)
    authorizer = StandardAuthorizer(config)
    entry = AclEntry(
        resource_type=ResourceType.CLUSTER,
        resource_name=CLUSTER_NAME,
        pattern_type=PatternType.LITERAL,
        principal="User:CN=b4.example",
        host="*",
        operation=AclOperation.CLUSTER_ACTION,
        permission=AclPermission.ALLOW,
    )
    image = replace(EMPTY, acls=NO_ACLS.with_entries({uuid4(): entry}))
    fetch = quorum_pb2.FetchRequest(replica_id=4)
    assert is_admitted(VOTE, vote(1), of_host("c1.example"), EMPTY, authorizer)
    assert is_admitted(FETCH, fetch, of_host("b4.example"), image, authorizer)
    assert not is_admitted(FETCH, fetch, of_host("client.example"), image, authorizer)
    assert not is_admitted(CLUSTER_ID.path, Empty(), of_host("client.example"), image, authorizer)
    assert not is_admitted(FETCH, fetch, of_host("b4.example"), EMPTY, authorizer)
