"""DescribeCluster: the refusal of a request that was sent to a node of the other role. Pure."""

from ottla.model.errors import ErrorCode
from ottla.wire.messages.describe_cluster_response import DescribeClusterResponse

BROKERS = 1
CONTROLLERS = 2
NAMES = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}


def wrong_endpoint(asked: int, own: int) -> DescribeClusterResponse:
    """Return the response to a request for an endpoint type that this node does not describe."""
    if asked in NAMES:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message=f"The request was sent to an endpoint of type {NAMES[own]}, but we "
            f"wanted an endpoint of type {NAMES[asked]}",
            endpoint_type=own,
        )
    return DescribeClusterResponse(
        error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        error_message=f"Unsupported endpoint type {asked}",
        endpoint_type=own,
    )
