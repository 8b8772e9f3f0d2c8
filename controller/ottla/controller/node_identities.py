"""Authentication of the node that sends a gRPC request to a controller, by its certificate. Pure.

Every request between nodes contains the id of the sender. On a listener that requires certificates,
this id is checked against the certificate:
- A certificate that contains node ids (`urn:ottla:node:ID`) is valid only for these nodes.
- A certificate without node ids is valid for the voter whose host it contains, or for the broker
  that was registered with it first (the registration stores the principal).

If ACLs are in use, the principal also needs ClusterAction on the cluster, as in Kafka. A client's
certificate from the same authority is therefore not sufficient for a node. Invariants:
NoNodeSpeaksForAnother, ForwardedPrincipalsComeFromBrokers.
"""

from collections.abc import Callable

from google.protobuf.message import Message

from ottla.metadata.image import MetadataImage
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.proto import controller_pb2 as pb
from ottla.raft.messages import (
    BeginQuorumEpochRequest,
    DescribeReplicaRequest,
    EndQuorumEpochRequest,
)
from ottla.raft.voters import VoterSet
from ottla.rpc import controller_methods as methods
from ottla.rpc.caller import Caller
from ottla.rpc.cluster_id import CLUSTER_ID
from ottla.rpc.quorum_codec import QUORUM_METHODS

ANY_NODE = None
"""Value in `SENDER_FIELDS` for gRPC methods that any caller with a trusted certificate may call."""

A_BROKER = ""
"""Value in `SENDER_FIELDS` for gRPC methods that any registered broker may call."""

SENT_BY_LEADER = (BeginQuorumEpochRequest, EndQuorumEpochRequest, DescribeReplicaRequest)
"""Classes of the requests that only the quorum's leader sends. They do not include requests that
add, remove or change a voter, which only the voter itself may send."""

SENDER_FIELDS: dict[str, str | None] = {
    CLUSTER_ID.path: ANY_NODE,
    methods.REGISTER.path: "broker_id",
    methods.HEARTBEAT.path: "broker_id",
    methods.ATTEND.path: "broker_id",
    methods.ALTER_PARTITION.path: "broker_id",
    methods.ALLOCATE_PRODUCER_IDS.path: "broker_id",
    methods.ASSIGN_REPLICAS_TO_DIRS.path: "broker_id",
    methods.UNREGISTER.path: A_BROKER,
    methods.REGISTER_CONTROLLER.path: "controller_id",
    methods.FORWARD.path: A_BROKER,
    **{
        one.method.path: "leader_id" if kind in SENT_BY_LEADER else "replica_id"
        for kind, one in QUORUM_METHODS.items()
    },
}
"""Name of the request field that contains the id of the sender, by gRPC method."""


def accept_any_caller(path: str, request: Message, caller: Caller) -> None:
    """Accept every node that calls, on a listener that does not require certificates. A broker that
    registers there has no principal."""
    if isinstance(request, pb.RegisterRequest):
        request.principal, request.is_named_by_certificate = "", False


class NodeIdentities:
    """Check of the nodes that call gRPC methods on a listener that requires certificates."""

    def __init__(
        self,
        voters: Callable[[], VoterSet],
        image: Callable[[], MetadataImage],
        authorizer: StandardAuthorizer | None = None,
    ) -> None:
        self._voters = voters
        self._image = image
        self._authorizer = authorizer

    def admit(self, path: str, request: Message, caller: Caller) -> None:
        """Check that the caller of a gRPC method is the node whose id the request contains. If the
        request registers a broker, the principal of the caller's certificate is added to the
        request.

        Raises RefusedError(CLUSTER_AUTHORIZATION_FAILED) if the caller is another node.
        """
        if not caller.is_authenticated:
            raise _refused("the caller has shown no certificate")
        if isinstance(request, pb.RegisterRequest):
            request.principal = caller.principal
            request.is_named_by_certificate = request.broker_id in caller.node_ids
        self._check_right(caller)
        field = SENDER_FIELDS[path]
        if field is ANY_NODE:
            return
        if field == A_BROKER:
            self._check_broker(caller)
            return
        node_id = NodeId(getattr(request, field))
        self._check_sender(node_id, caller, is_registering=path == methods.REGISTER.path)

    def _check_right(self, caller: Caller) -> None:
        """Raise RefusedError if a caller is not permitted to act as a node.

        Until the metadata is loaded, only super users are permitted.
        """
        if self._authorizer is None:
            return
        self._authorizer.take(self._image().acls)
        if not self._authorizer.is_allowed(
            caller.principal,
            caller.host,
            AclOperation.CLUSTER_ACTION,
            ResourceType.CLUSTER,
            CLUSTER_NAME,
        ):
            raise _refused(
                f"{caller.principal} has no ClusterAction on the cluster; if it is a node's, add "
                "it to super.users of all controllers"
            )

    def _check_sender(self, node_id: NodeId, caller: Caller, *, is_registering: bool) -> None:
        if caller.node_ids:
            if node_id not in caller.node_ids:
                named = ", ".join(map(str, sorted(caller.node_ids)))
                raise _refused(f"{caller.principal} is node {named}, not node {node_id}")
            return
        voter = self._voters().get(node_id)
        if voter is not None:
            if not any(caller.speaks_for_host(one.host) for one in voter.endpoints):
                raise _refused(
                    f"the certificate of {caller.principal} is for no host of controller {node_id}"
                )
            return
        known = self._image().brokers.get(node_id)
        # For a registration, the decision checks the certificate, on the image that it changes.
        if known is None or not known.principal or is_registering:
            return
        if known.principal != caller.principal:
            raise _refused(f"broker {node_id} was registered by {known.principal}")

    def _check_broker(self, caller: Caller) -> None:
        brokers = self._image().brokers
        if any(node_id in brokers for node_id in caller.node_ids):
            return
        if not any(one.principal == caller.principal for one in brokers.values()):
            raise _refused(f"{caller.principal} has registered no broker")


def _refused(reason: str) -> RefusedError:
    return RefusedError(
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"Not allowed by the caller's certificate: {reason}"
    )
