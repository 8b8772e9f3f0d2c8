"""What a node of a real machine stands on: the kernel, and gRPC."""

from ottla.node.clock_driver import RealClock, RealRng
from ottla.node.seams import NodeSeams
from ottla.rpc.rpc_driver import open_rpc_runtime
from ottla.storage.disk import RealDisk


def real_seams() -> NodeSeams:
    """Return the machine's own seams."""
    return NodeSeams(
        clock=RealClock(), rng=RealRng(), open_disk=RealDisk, open_rpc=open_rpc_runtime
    )
