"""Changes of the voter set that clients request (KIP-853).

Pure. A decision checks the request's cluster id and size, and contains the change that the quorum
makes. The leader of the quorum performs all other checks, in Kafka's order
(`raft/voter_changes.py`). As in Kafka, the request's timeout is ignored: the quorum answers within
`controller.quorum.request.timeout.ms`.
"""

from ottla.controller.decision import Context, Decision
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import ZERO_UUID, NodeId
from ottla.raft.messages import AddVoterRequest, RemoveVoterRequest
from ottla.raft.voters import ReplicaKey, Voter, VoterEndpoint
from ottla.rpc.quorum_codec import ENDPOINTS_MAX, fault_of_endpoints
from ottla.wire.messages.add_raft_voter_request import AddRaftVoterRequest
from ottla.wire.messages.add_raft_voter_response import AddRaftVoterResponse
from ottla.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from ottla.wire.messages.remove_raft_voter_response import RemoveRaftVoterResponse


def add_voter(
    image: MetadataImage, context: Context, request: AddRaftVoterRequest
) -> Decision[AddRaftVoterResponse]:
    """Return the controller's decision on a client's AddRaftVoter request."""
    _check_cluster(context, request.cluster_id)
    endpoints = tuple(
        VoterEndpoint(one.name, one.host, one.port)
        for one in request.listeners[: ENDPOINTS_MAX + 1]
    )
    fault = fault_of_endpoints(endpoints)
    if fault is not None:
        raise RefusedError(ErrorCode.INVALID_REQUEST, fault)
    change = AddVoterRequest(
        cluster_id=context.cluster_id,
        voter=Voter(
            id=NodeId(request.voter_id),
            directory_id=request.voter_directory_id or ZERO_UUID,
            endpoints=endpoints,
        ),
        ack_when_committed=request.ack_when_committed,
    )
    return Decision((), AddRaftVoterResponse(error_message=None), image, voter_change=change)


def remove_voter(
    image: MetadataImage, context: Context, request: RemoveRaftVoterRequest
) -> Decision[RemoveRaftVoterResponse]:
    """Return the controller's decision on a client's RemoveRaftVoter request."""
    _check_cluster(context, request.cluster_id)
    key = ReplicaKey(NodeId(request.voter_id), request.voter_directory_id or ZERO_UUID)
    change = RemoveVoterRequest(cluster_id=context.cluster_id, voter_key=key)
    return Decision((), RemoveRaftVoterResponse(error_message=None), image, voter_change=change)


def _check_cluster(context: Context, cluster_id: str | None) -> None:
    """Raise RefusedError if a request to change the voters is for another cluster. A request
    without a cluster id is for any cluster."""
    if cluster_id is not None and cluster_id != context.cluster_id:
        raise RefusedError(
            ErrorCode.INCONSISTENT_CLUSTER_ID, f"The cluster id is {context.cluster_id}."
        )
