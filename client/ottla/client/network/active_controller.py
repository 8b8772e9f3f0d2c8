"""Look-up of a cluster's active controller, and of the cluster of a controller, by DescribeCluster
requests to controllers (KIP-919)."""

from collections.abc import Iterable

import trio

from ottla.client.network.cluster import raise_for
from ottla.client.network.connection import ConnectionLostError, open_connection
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_cluster_response import DescribeClusterResponse

CONTROLLERS = 2
"""Value of `endpoint_type` in a DescribeCluster request for controllers."""

LOOK_UP_S = 2.0
"""Maximum wait, in seconds, for a controller's response with the id of its cluster."""


async def active_controller(
    addresses: Iterable[tuple[str, int]], *, client_id: str = "ottla"
) -> tuple[str, int]:
    """Ask the controllers at `addresses`, in order, for the active controller. Returns the host and
    port in the first response.

    Raises ConnectionLostError if no address responds. Raises RefusedError if no controller is
    active, or if an address belongs to a broker.
    """
    lost: ConnectionLostError | None = None
    for host, port in addresses:
        try:
            async with open_connection(host, port, client_id=client_id) as connection:
                answer = await connection.request(
                    DescribeClusterRequest(endpoint_type=CONTROLLERS), DescribeClusterResponse
                )
        except ConnectionLostError as error:
            lost = error
            continue
        raise_for(answer.error_code, answer.error_message)
        for controller in answer.brokers:
            if controller.broker_id == answer.controller_id:
                return controller.host, controller.port
        raise RefusedError(ErrorCode.NOT_CONTROLLER, "no controller is active at present")
    raise lost or ConnectionLostError("no address of a controller is given")


async def cluster_id_at(address: tuple[str, int], *, client_id: str = "ottla") -> str | None:
    """Return the id of the cluster to which the controller at an address belongs, or None if the
    controller does not respond or the user lacks the permission."""
    with trio.move_on_after(LOOK_UP_S):
        try:
            async with open_connection(*address, client_id=client_id) as connection:
                answer = await connection.request(
                    DescribeClusterRequest(endpoint_type=CONTROLLERS), DescribeClusterResponse
                )
        except OttlaError:
            return None
        return answer.cluster_id or None
    return None
