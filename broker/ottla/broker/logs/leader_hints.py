"""Tells a client that asked the wrong broker who leads instead, and where (KIP-951).

Pure.  Answers from Produce 10 and Fetch 16 on may carry the current leader of a partition and the
endpoint of that broker on the listener the client came in by, which saves it a Metadata round.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId

HINTED = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))
"""The refusals after which a client would look for the leader."""


class LeaderEndpoint(NamedTuple):
    """Where a client reaches one broker."""

    node_id: int
    host: str
    port: int
    rack: str | None


def endpoints_of(
    image: MetadataImage, node_ids: Iterable[int], listener_name: str
) -> list[LeaderEndpoint]:
    """Return where those brokers listen under that name; one that is not known is left out."""
    found = []
    for node_id in sorted(set(node_ids)):
        broker = image.brokers.get(NodeId(node_id))
        endpoint = None if broker is None else broker.endpoint(listener_name)
        if broker is not None and endpoint is not None:
            found.append(LeaderEndpoint(node_id, endpoint.host, endpoint.port, broker.rack))
    return found
