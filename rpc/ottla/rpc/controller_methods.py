"""The methods of `ottla.controller.Controller`: what a broker asks of the active controller."""

from ottla.model.limits import MIB
from ottla.proto import controller_pb2 as pb
from ottla.rpc.method import RpcMethod

_SERVICE = "/ottla.controller.Controller"

PARTITIONS_BYTES_MAX = 4 * MIB
"""Of what a broker says of its partitions: less does not hold what it has to say of 90,000."""

REGISTER = RpcMethod(
    f"{_SERVICE}/Register", pb.RegisterRequest, pb.RegisterResponse, request_bytes_max=MIB
)
HEARTBEAT = RpcMethod(f"{_SERVICE}/Heartbeat", pb.HeartbeatRequest, pb.HeartbeatResponse)
ATTEND_MS = 60_000
"""How long a controller keeps a call of `ATTEND` open.  Between two calls a broker's end is not
noticed, so that shorter misses more of them; longer keeps calls that nothing needs any longer."""

ATTEND = RpcMethod(f"{_SERVICE}/Attend", pb.AttendRequest, pb.AttendResponse)
ALTER_PARTITION = RpcMethod(
    f"{_SERVICE}/AlterPartition",
    pb.AlterPartitionRequest,
    pb.AlterPartitionResponse,
    request_bytes_max=PARTITIONS_BYTES_MAX,
)
ALLOCATE_PRODUCER_IDS = RpcMethod(
    f"{_SERVICE}/AllocateProducerIds",
    pb.AllocateProducerIdsRequest,
    pb.AllocateProducerIdsResponse,
)
ASSIGN_REPLICAS_TO_DIRS = RpcMethod(
    f"{_SERVICE}/AssignReplicasToDirs",
    pb.AssignReplicasToDirsRequest,
    pb.AssignReplicasToDirsResponse,
    request_bytes_max=PARTITIONS_BYTES_MAX,
)
UNREGISTER = RpcMethod(f"{_SERVICE}/Unregister", pb.UnregisterRequest, pb.UnregisterResponse)
FORWARD_BYTES_MAX = 4 * MIB
"""A client's request that makes the most of what one may change, 10,000 topics or settings with
long names, takes less; more would take the memory of a controller as its objects."""

FORWARD_CALLS_MAX = 64
"""Decisions are made one after the other; what waits for its turn waits at the brokers."""

FORWARD = RpcMethod(
    f"{_SERVICE}/Forward",
    pb.ForwardRequest,
    pb.ForwardResponse,
    request_bytes_max=FORWARD_BYTES_MAX,
    calls_max=FORWARD_CALLS_MAX,
)
