"""Who the producers of this process were, so that the next one is nobody new to the brokers.

A broker remembers every producer id for a day, in each partition it wrote to.  A process that opens
one short producer after the other would leave it thousands of them; so an idempotent producer may
go on under an earlier one's id, at its next epoch, as a producer does by itself after a gap.  That
also shuts out what the earlier one may still have on the way.  Pure.  Invariant:

OneOwner    an identity belongs to one producer at a time, and each to one cluster
"""

from ottla.client.produce.accumulator import ProducerIdentity
from ottla.model.limits import INT16_MAX


class ProducerIdentities:
    """Identities that nobody uses now, by cluster; shared by producers that follow each other."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free: dict[str, list[ProducerIdentity]] = {}

    def take(self, cluster_id: str | None) -> ProducerIdentity | None:
        """Return an identity for a new producer; None where it must ask for one."""
        free = self._free.get(cluster_id or "")
        return free.pop() if free else None

    def give_back(self, cluster_id: str | None, identity: ProducerIdentity | None) -> None:
        """Keep the name of a producer that is gone, for one at the next epoch.

        A cluster that does not tell its id may be another one next time: nothing is kept for it.
        """
        if cluster_id and identity is not None and identity.epoch < INT16_MAX - 1:
            kept = identity._replace(epoch=identity.epoch + 1)
            self._free.setdefault(cluster_id, []).append(kept)
