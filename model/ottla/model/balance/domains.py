"""Failure domains of replicas: a rack, or a host within a rack. Pure."""

from collections.abc import Iterable, Mapping

from ottla.model.ids import NodeId

Domain = tuple[str | None, str | None]
"""Failure domain of a broker: the names of its rack and of its host. A name is None if it is not
known."""

NO_DOMAIN: Domain = (None, None)
Collisions = tuple[int, int]
"""Number of replicas that share a rack with an earlier replica of the same partition, and number of
replicas that share a host with an earlier one."""


def collisions(domains: Mapping[NodeId, Domain], replicas: Iterable[NodeId]) -> Collisions:
    """Return the number of replicas that share a rack with an earlier replica, and the number of
    replicas that share a host with an earlier replica."""
    found = [domains.get(one, NO_DOMAIN) for one in replicas]
    racks = {rack for rack, _ in found}
    return len(found) - len(racks), len(found) - len(set(found))
