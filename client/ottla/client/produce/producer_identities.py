"""Producer ids and epochs of closed producers, which later producers of this process reuse.

Brokers remember each producer id for a day, in every partition to which the producer wrote. A
process with many short-lived producers would therefore fill brokers with thousands of producer ids.
An idempotent producer may instead use the id of an earlier producer with the next epoch, as a
single producer does after a gap in its sequences. The new epoch also fences late requests of the
earlier producer. Pure. Invariant:
- OneOwner: an identity belongs to one cluster, and is used by one producer at a time.
"""

from ottla.client.produce.accumulator import ProducerIdentity
from ottla.model.limits import INT16_MAX


class ProducerIdentities:
    """Producer ids and epochs of closed producers, by cluster. Later producers of the process reuse
    them."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free: dict[str, list[ProducerIdentity]] = {}

    def take(self, cluster_id: str | None) -> ProducerIdentity | None:
        """Remove and return an unused identity for a new producer. Returns None if the producer
        must request an identity from a broker."""
        free = self._free.get(cluster_id or "")
        return free.pop() if free else None

    def give_back(self, cluster_id: str | None, identity: ProducerIdentity | None) -> None:
        """Store the producer id of a closed producer for a later producer, which uses it with the
        next epoch.

        Nothing is stored if the cluster id is unknown, because the later producer might write to
        another cluster.
        """
        if cluster_id and identity is not None and identity.epoch < INT16_MAX - 1:
            kept = identity._replace(epoch=identity.epoch + 1)
            self._free.setdefault(cluster_id, []).append(kept)
