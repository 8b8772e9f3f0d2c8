"""Descriptors of the gRPC methods of `ottla.controller.Controller`: requests of brokers and
controllers to the active controller."""

from ottla.model.limits import MIB
from ottla.proto import controller_pb2 as pb
from ottla.rpc.method import RpcMethod

_SERVICE = "/ottla.controller.Controller"

PARTITIONS_BYTES_MAX = 4 * MIB
"""Maximum size in bytes of requests to the controller that list partitions. A smaller limit would
not suffice for 90,000 partitions."""

REGISTER = RpcMethod(
    f"{_SERVICE}/Register", pb.RegisterRequest, pb.RegisterResponse, request_bytes_max=MIB
)
HEARTBEAT = RpcMethod(f"{_SERVICE}/Heartbeat", pb.HeartbeatRequest, pb.HeartbeatResponse)
ATTEND_MS = 60_000
"""Time in ms for which a controller keeps an `ATTEND` call open, which detects the end of a
broker's process. The end of a broker between two calls is not detected. A shorter time makes such a
miss more likely. A longer time keeps unnecessary calls open longer."""

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
REGISTER_CONTROLLER = RpcMethod(
    f"{_SERVICE}/RegisterController", pb.RegisterControllerRequest, pb.RegisterControllerResponse
)
FORWARD_BYTES_MAX = 4 * MIB
"""Maximum size in bytes of a client's request that a broker forwards to the controller. The largest
useful request, with 10,000 topics or settings with long names, is smaller. The objects of a larger
request could exhaust the controller's memory."""

FORWARD_CALLS_MAX = 64
"""Maximum number of forwarded requests in progress at a controller. The controller processes
requests one by one. Further requests wait at their brokers."""

FORWARD = RpcMethod(
    f"{_SERVICE}/Forward",
    pb.ForwardRequest,
    pb.ForwardResponse,
    request_bytes_max=FORWARD_BYTES_MAX,
    calls_max=FORWARD_CALLS_MAX,
)
