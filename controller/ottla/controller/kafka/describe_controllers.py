"""DescribeCluster on a controller: the registered controllers and the active controller (KIP-919).

Pure.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.metadata.image import ControllerRegistration
from ottla.model.ids import NO_NODE, NodeId
from ottla.node.admin.describe_cluster import CONTROLLERS, wrong_endpoint
from ottla.node.authorization.questions import cluster_operations
from ottla.node.network.dispatch import RequestContext
from ottla.raft.voters import VoterSet
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_cluster_response import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)


class KnownControllers(NamedTuple):
    """Interface to the controllers of the cluster that this controller knows."""

    registered: Iterable[ControllerRegistration]
    voters: VoterSet
    active_id: NodeId | None


class DescribeControllersApi:
    """Handler of DescribeCluster on a controller, versions 0 to 2."""

    def __init__(self, cluster_id: str, known: Callable[[], KnownControllers]) -> None:
        self._cluster_id = cluster_id
        self._known = known

    def handle(
        self, context: RequestContext, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        """Return the response to DescribeCluster: the address of each registered controller on the
        client's listener.

        Voters that are not registered, as below ottla.version 1, are listed with their addresses in
        the voter set.
        """
        if request.endpoint_type != CONTROLLERS:
            return wrong_endpoint(request.endpoint_type, CONTROLLERS, context.api_version)
        known = self._known()
        listener = context.peer.listener_name
        addresses: dict[NodeId, tuple[str, int]] = {}
        for voter in known.voters:
            found = [(one.host, one.port) for one in voter.endpoints if one.name == listener]
            every = [(one.host, one.port) for one in voter.endpoints]
            if every:
                addresses[voter.id] = (found or every)[0]
        for registration in known.registered:
            for endpoint in registration.endpoints:
                if endpoint.name == listener:
                    addresses[registration.id] = endpoint.host, endpoint.port
        return DescribeClusterResponse(
            endpoint_type=CONTROLLERS,
            cluster_id=self._cluster_id,
            controller_id=NO_NODE if known.active_id is None else known.active_id,
            brokers=[
                DescribeClusterBroker(broker_id=node_id, host=host, port=port)
                for node_id, (host, port) in sorted(addresses.items())
            ],
            cluster_authorized_operations=cluster_operations(
                context.permissions, is_asked=request.include_cluster_authorized_operations
            ),
        )
