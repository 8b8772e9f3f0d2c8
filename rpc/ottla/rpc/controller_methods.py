"""The methods of `ottla.controller.Controller`: what a broker asks of the active controller."""

from ottla.proto import controller_pb2 as pb
from ottla.rpc.method import RpcMethod

_SERVICE = "/ottla.controller.Controller"

REGISTER = RpcMethod(f"{_SERVICE}/Register", pb.RegisterRequest, pb.RegisterResponse)
HEARTBEAT = RpcMethod(f"{_SERVICE}/Heartbeat", pb.HeartbeatRequest, pb.HeartbeatResponse)
ALTER_PARTITION = RpcMethod(
    f"{_SERVICE}/AlterPartition", pb.AlterPartitionRequest, pb.AlterPartitionResponse
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
)
UNREGISTER = RpcMethod(f"{_SERVICE}/Unregister", pb.UnregisterRequest, pb.UnregisterResponse)
FORWARD = RpcMethod(f"{_SERVICE}/Forward", pb.ForwardRequest, pb.ForwardResponse)
