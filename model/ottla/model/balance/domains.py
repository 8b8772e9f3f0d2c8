"""Failure domains of replicas: a rack, or a host within a rack. Pure."""

from collections.abc import Iterable, Mapping

from ottla.model.ids import NodeId

Domain = tuple[str | None, str | None]
"""Failure domain of a broker: the names of its rack and of its host. A name is None if it is not
known."""

NO_DOMAIN: Domain = (None, None)
Collisions = tuple[int, int]
"""Two numbers of replicas: those in the same rack as an earlier replica of the partition, and those
on the same host as an earlier replica."""


def collisions(domains: Mapping[NodeId, Domain], replicas: Iterable[NodeId]) -> Collisions:
    """Compare each replica of a partition with its earlier replicas. Returns the number of replicas
    whose rack is already used, and the number of replicas whose host is already used."""
    found = [domains.get(one, NO_DOMAIN) for one in replicas]
    racks = {rack for rack, _ in found}
    return len(found) - len(racks), len(found) - len(set(found))
