"""ACL operations that a caller needs for each gRPC method between nodes, one row per method.

A test fails if a method of the services has no row.
"""

from ottla.model.security.acls import AclOperation
from ottla.wire.api import Need, on_cluster

_CONTROLLER = (
    "Register",
    "Heartbeat",
    "Attend",
    "AlterPartition",
    "AllocateProducerIds",
    "AssignReplicasToDirs",
    "Unregister",
    "RegisterController",
    "Forward",
)
_QUORUM = (
    "Vote",
    "BeginQuorumEpoch",
    "EndQuorumEpoch",
    "Fetch",
    "FetchSnapshot",
    "AddVoter",
    "RemoveVoter",
    "UpdateVoter",
    "DescribeReplica",
)

RPC_NEEDS: dict[str, Need] = dict.fromkeys(
    (
        *(f"/ottla.controller.Controller/{name}" for name in _CONTROLLER),
        *(f"/ottla.quorum.Quorum/{name}" for name in _QUORUM),
    ),
    on_cluster(AclOperation.CLUSTER_ACTION),
)
"""ACL operation that the caller of a gRPC method must be allowed, by the method's path. Only nodes
call these methods."""
