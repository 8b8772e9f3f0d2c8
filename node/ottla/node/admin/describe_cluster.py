"""Refuses DescribeCluster requests that were meant for a node of the other role. Pure."""

from ottla.model.errors import ErrorCode
from ottla.wire.messages.describe_cluster_response import DescribeClusterResponse

BROKERS = 1
CONTROLLERS = 2
NAMES = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}


ENDPOINT_TYPE_FROM = 1
"""First version of DescribeCluster that contains an endpoint type. Earlier versions always request
brokers."""


def wrong_endpoint(asked: int, own: int, version: int) -> DescribeClusterResponse:
    """Return an error response to a DescribeCluster request. `asked` is the endpoint type in the
    request (brokers or controllers), and `own` is the only endpoint type that this node
    describes."""
    named = own if version >= ENDPOINT_TYPE_FROM else BROKERS
    if asked in NAMES:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message=f"The request was sent to an endpoint of type {NAMES[own]}, but we "
            f"wanted an endpoint of type {NAMES[asked]}",
            endpoint_type=named,
        )
    return DescribeClusterResponse(
        error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
        error_message=f"Unsupported endpoint type {asked}",
        endpoint_type=named,
    )
