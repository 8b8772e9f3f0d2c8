"""Which node a caller of the controllers' gRPC speaks for, by its certificate.  Pure.

Every request among nodes names the node that sends it.  Where the listener asks for certificates,
that claim is held against the caller's: a certificate that names node ids (`urn:ottla:node:ID`)
speaks for these alone; one that names none speaks for the voter whose host it is valid for, or for
the broker that it was the first to register (the registration keeps its principal).  Where ACLs
decide, the principal must have ClusterAction on the cluster besides, as in Kafka: a certificate of
a client, though of the same authority, is no node's.  Invariants: NobodySpeaksForAnotherNode,
ForwardedPrincipalsComeFromBrokers.
"""

from collections.abc import Callable

from google.protobuf.message import Message

from ottla.metadata.image import MetadataImage
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.proto import controller_pb2 as pb
from ottla.raft.voters import VoterSet
from ottla.rpc import controller_methods as methods
from ottla.rpc.caller import Caller
from ottla.rpc.cluster_id import CLUSTER_ID
from ottla.rpc.quorum_codec import CONVERSATIONS

ANY_NODE = None
"""In place of the field that names the sender: every trusted certificate may call."""

A_BROKER = ""
"""In place of that field: the caller must be a registered broker, whichever."""

SENDER_FIELDS: dict[str, str | None] = {
    CLUSTER_ID.path: ANY_NODE,
    methods.REGISTER.path: "broker_id",
    methods.HEARTBEAT.path: "broker_id",
    methods.ATTEND.path: "broker_id",
    methods.ALTER_PARTITION.path: "broker_id",
    methods.ALLOCATE_PRODUCER_IDS.path: "broker_id",
    methods.ASSIGN_REPLICAS_TO_DIRS.path: "broker_id",
    methods.UNREGISTER.path: A_BROKER,
    methods.FORWARD.path: A_BROKER,
    **{
        one.method.path: ("leader_id" if one.method.path.endswith("QuorumEpoch") else "replica_id")
        for one in CONVERSATIONS.values()
    },
}
"""The field of each method's request that says which node sends it."""


def admit_anyone(path: str, request: Message, caller: Caller) -> None:
    """Admit every caller of a listener that asks for no certificate; a broker has no principal."""
    if isinstance(request, pb.RegisterRequest):
        request.principal, request.is_named_by_certificate = "", False


class NodeIdentities:
    """The rule of a controller's listener that asks for certificates."""

    def __init__(
        self,
        voters: VoterSet,
        image: Callable[[], MetadataImage],
        authorizer: StandardAuthorizer | None = None,
    ) -> None:
        self._voters = voters
        self._image = image
        self._authorizer = authorizer

    def admit(self, path: str, request: Message, caller: Caller) -> None:
        """Refuse a call in another node's name, and note as whom a broker registers.

        Raises RefusedError with CLUSTER_AUTHORIZATION_FAILED.
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
        """Refuse who may not act as a node.  Before the metadata is loaded only super users may."""
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
        voter = self._voters.get(node_id)
        if voter is not None:
            if not any(caller.speaks_for_host(one.host) for one in voter.endpoints):
                raise _refused(
                    f"the certificate of {caller.principal} is for no host of controller {node_id}"
                )
            return
        known = self._image().brokers.get(node_id)
        # A registration is decided with the image that it changes.
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
