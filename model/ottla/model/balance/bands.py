"""Loads of brokers, and the band around the mean within which a broker counts as balanced. Pure.

All arithmetic uses integers. Each move therefore reduces an integer sum, and the search for moves
ends.
"""

from collections.abc import Iterable, Mapping

from ottla.model.ids import NodeId

PERCENT = 100


class Band:
    """Loads of some brokers in one quantity, such as bytes, and the band: the range around each
    broker's fair share within which its load counts as balanced.

    A broker's share of the total load is proportional to its weight. Deviations are multiplied by
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
        """Create the band for the brokers in `weights`. Each method reads `loads` again, so the
        loads may change as long as their sum over these brokers stays the same."""
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
        """Return the difference between a broker's load and its share, multiplied by `scale`.
        `change` is added to the load first."""
        share = PERCENT * self._total * self._weights[broker]
        return self.scale * (self._loads[broker] + change) - share

    def excess(self, broker: NodeId, change: int = 0) -> int:
        """Return how far a broker's load is above or below the band, multiplied by `scale`. The
        result is never negative, and 0 within the band. `change` is added to the load first."""
        return max(0, abs(self.deviation(broker, change)) - self._tolerances[broker])

    def over(self, broker: NodeId) -> int:
        """Return the amount of load by which a broker is above the band, rounded up. Returns 0 if
        it is not above."""
        return max(0, -((self._tolerances[broker] - self.deviation(broker)) // self.scale))

    def under(self, broker: NodeId) -> int:
        """Return the amount of load by which a broker is below the band, rounded up. Returns 0 if
        it is not below."""
        return max(0, -((self._tolerances[broker] + self.deviation(broker)) // self.scale))

    def effect(self, giver: NodeId, taker: NodeId, load: int) -> int:
        """Return how much the sum of all brokers' excesses changes if `load` moves from broker
        `giver` to broker `taker`. A negative result means that the move improves the balance."""
        return (
            self.excess(giver, -load)
            + self.excess(taker, load)
            - self.excess(giver)
            - self.excess(taker)
        )

    def percent(self, broker: NodeId) -> int:
        """Return the deviation of a broker from its share, in percent of the share. Returns 100 if
        the share is 0."""
        share = PERCENT * self._total * self._weights[broker]
        return self.deviation(broker) * PERCENT // share if share else PERCENT

    def relative(self, broker: NodeId) -> float:
        """Return the load of a broker divided by its weight."""
        return self._loads[broker] / self._weights[broker]

    def outside(self) -> list[NodeId]:
        """Return the brokers whose load is outside the band."""
        return [broker for broker in self._weights if self.excess(broker)]

    def by_load(self, *, is_descending: bool = False) -> Iterable[NodeId]:
        """Return all brokers sorted by load relative to their weight, then by id. The order is
        ascending unless `is_descending`."""
        sign = -1 if is_descending else 1
        return sorted(self._weights, key=lambda broker: (sign * self.relative(broker), broker))
