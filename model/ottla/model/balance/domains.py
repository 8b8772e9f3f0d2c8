"""Replicas that share a failure domain: a rack, or a host in it.  Pure."""

from collections.abc import Iterable, Mapping

from ottla.model.ids import NodeId

Domain = tuple[str | None, str | None]
"""Rack and host of a broker: its failure domain."""

NO_DOMAIN: Domain = (None, None)
Collisions = tuple[int, int]
"""Number of replicas that share a rack with another one, and the same for hosts."""


def collisions(domains: Mapping[NodeId, Domain], replicas: Iterable[NodeId]) -> Collisions:
    """Return the number of replicas that share a rack with an earlier replica, and the number that
    share a host with one."""
    found = [domains.get(one, NO_DOMAIN) for one in replicas]
    racks = {rack for rack, _ in found}
    return len(found) - len(racks), len(found) - len(set(found))
