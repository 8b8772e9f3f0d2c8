"""Loads of brokers, and the band around the mean that counts as balanced.  Pure.

All arithmetic is exact, so that the search ends: every move reduces a sum of integers.
"""

from collections.abc import Iterable, Mapping

from ottla.model.ids import NodeId

PERCENT = 100


class Band:
    """Loads of some brokers in one quantity, such as bytes, and their deviations from the mean.

    A broker's share of the total is proportional to its weight. Deviations are multiplied by
    `scale`, which makes them integers.
    """

    def __init__(
        self,
        loads: Mapping[NodeId, int],
        weights: Mapping[NodeId, int],
        *,
        tolerance_percent: int,
        ignored: int = 0,
    ) -> None:
        """Create the band for the brokers in `weights`. `loads` is read at each call, so it may
        change as long as the sum over these brokers does not."""
        self._loads = loads
        self._weights = weights
        self._total = sum(loads[broker] for broker in weights)
        self.scale = PERCENT * sum(weights.values())
        tolerances = {
            broker: tolerance_percent * self._total * weight for broker, weight in weights.items()
        }
        self._tolerances = {
            broker: max(tolerance, self.scale * ignored) for broker, tolerance in tolerances.items()
        }

    def deviation(self, broker: NodeId, change: int = 0) -> int:
        """Return the scaled deviation of a broker from its share if its load changes by
        `change`."""
        share = PERCENT * self._total * self._weights[broker]
        return self.scale * (self._loads[broker] + change) - share

    def excess(self, broker: NodeId, change: int = 0) -> int:
        """Return the part of a broker's deviation that is outside the band, as a positive number on
        either side."""
        return max(0, abs(self.deviation(broker, change)) - self._tolerances[broker])

    def over(self, broker: NodeId) -> int:
        """Return the load of a broker above the band, rounded up. Returns 0 if there is none."""
        return max(0, -((self._tolerances[broker] - self.deviation(broker)) // self.scale))

    def under(self, broker: NodeId) -> int:
        """Return the load that a broker lacks to reach the band, rounded up."""
        return max(0, -((self._tolerances[broker] + self.deviation(broker)) // self.scale))

    def effect(self, giver: NodeId, taker: NodeId, load: int) -> int:
        """Return the change of the sum of all excesses if `giver` passes some load to `taker`. It
        is negative if the move improves the balance."""
        return (
            self.excess(giver, -load)
            + self.excess(taker, load)
            - self.excess(giver)
            - self.excess(taker)
        )

    def percent(self, broker: NodeId) -> int:
        """Return the deviation of a broker in percent of its share; 100 if the share is 0."""
        share = PERCENT * self._total * self._weights[broker]
        return self.deviation(broker) * PERCENT // share if share else PERCENT

    def relative(self, broker: NodeId) -> float:
        """Return the load of a broker in proportion to its weight."""
        return self._loads[broker] / self._weights[broker]

    def outside(self) -> list[NodeId]:
        """Return the brokers whose load is outside the band."""
        return [broker for broker in self._weights if self.excess(broker)]

    def by_load(self, *, is_descending: bool = False) -> Iterable[NodeId]:
        """Return all brokers in order of their loads, then of their ids."""
        sign = -1 if is_descending else 1
        return sorted(self._weights, key=lambda broker: (sign * self.relative(broker), broker))
