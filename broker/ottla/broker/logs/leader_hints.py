"""Looks up leader hints: the endpoint of a partition's current leader, for a client that sent a
request to another broker (KIP-951).

Pure. Responses from Produce 10 and Fetch 16 on may contain the current leader of a partition and
its endpoint on the client's listener. The hint saves the client a Metadata request.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId

HINTED = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))
"""Error codes that indicate a wrong leader. The response then names the current leader, which saves
the client a lookup."""


class LeaderEndpoint(NamedTuple):
    """Host and port at which clients reach a broker that leads a partition."""

    node_id: int
    host: str
    port: int
    rack: str | None


def endpoints_of(
    image: MetadataImage, node_ids: Iterable[int], listener_name: str
) -> list[LeaderEndpoint]:
    """Return the endpoints of the brokers in `node_ids` on the named listener. Brokers without an
    endpoint on that listener are left out."""
    found = []
    for node_id in sorted(set(node_ids)):
        broker = image.brokers.get(NodeId(node_id))
        endpoint = None if broker is None else broker.endpoint(listener_name)
        if broker is not None and endpoint is not None:
            found.append(LeaderEndpoint(node_id, endpoint.host, endpoint.port, broker.rack))
    return found
