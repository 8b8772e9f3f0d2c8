"""Planner of moves that balance a cluster or empty a broker. The same input gives the same plan.
Pure.

If brokers are leaving the cluster, the planner moves only their replicas. Otherwise it has four
goals, the most important first:

1. The replicas of a partition are in different racks and on different hosts, if there are enough
   racks and hosts.
2. The bytes on each broker are in proportion to the size of its disks.
3. Each broker has the same number of replicas.
4. Each broker leads the same number of partitions. Only leader elections serve this goal.

Goals 2 to 4 are reached when each broker deviates from its share by at most the tolerance. Every
move reduces the deviations of its goal and increases those of no earlier goal. The search therefore
ends, and the plan for a balanced cluster is empty. The planner pursues the goals repeatedly until
it finds no further move. If all moves of a plan are made, the next plan is therefore empty as well,
unless disks were too full in between.

Kafka has no planner. The goals and the tolerance (10 %) are modelled on Cruise Control. Cruise
Control also models the CPU time of replicas. This planner does not, because that model needs weeks
of samples.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator

from ottla.model.balance.bands import Band
from ottla.model.balance.cluster_load import BalanceLimits, ClusterLoad
from ottla.model.balance.move_plan import BalancePlan, PlannedMove, UnmovedReason
from ottla.model.balance.refusals import refusal_of_cluster, refusal_of_partition
from ottla.model.balance.replica_table import Obstacle, ReplicaTable
from ottla.model.ids import NodeId

SCANNED_MAX = 500
"""Maximum number of partitions that the search examines for a move from one broker to another. With
a smaller number, the search misses a move if most partitions already have replicas on both brokers.
With a larger number, it takes longer for two brokers between which no move is possible."""

DEFAULT_LIMITS = BalanceLimits()


def plan_moves(load: ClusterLoad, limits: BalanceLimits = DEFAULT_LIMITS) -> BalancePlan:
    """Return a plan of moves. If brokers are leaving, the moves free them of all replicas.
    Otherwise the moves balance the cluster."""
    table = ReplicaTable(load, limits)
    refusal = refusal_of_cluster(load)
    if refusal is not None:
        totals = table.totals()
        reasons = (UnmovedReason("", refusal),)
        return BalancePlan(unmoved=reasons, before=totals, after=totals, is_refused=True)
    return _Search(load, limits, table).plan()


class _Search:
    """State of one search for replica moves that balance the cluster."""

    def __init__(self, load: ClusterLoad, limits: BalanceLimits, table: ReplicaTable) -> None:
        self._load = load
        self._limits = limits
        self._now = table
        self._before = table.totals()
        self._work_left = limits.work_max
        self._unmoved: dict[UnmovedReason, None] = {}
        self._reasons: dict[int, dict[str, None]] = {}
        """Reasons for changing partitions, by index of the partition, in the order of the
        changes."""
        self._movable: list[int] = []
        self._is_cut_short = False
        self._obstacles: dict[tuple[str, NodeId], Counter[Obstacle]] = defaultdict(Counter)
        """Rules that prevented moves from or to a broker in the last pass of a goal."""
        self._takers = [
            broker.id
            for broker in table.brokers.values()
            if broker.is_active and not broker.is_cordoned and broker.id not in load.leaving
        ]
        sizes = {broker: table.brokers[broker].total_bytes for broker in self._takers}
        self._weights = sizes if all(sizes.values()) else dict.fromkeys(self._takers, 1)
        """Weight of each broker that takes part in the balance."""

    def plan(self) -> BalancePlan:
        """Run the search, and return the plan."""
        leaving = self._load.leaving
        for index, partition in enumerate(self._now.partitions):
            if leaving and not any(one in leaving for one in partition.replicas):
                continue
            refusal = refusal_of_partition(partition, self._now.brokers, leaving, self._limits)
            if refusal is None:
                self._movable.append(index)
            else:
                self._refuse(str(partition.at), refusal)
        self._now.allow(self._movable)
        if leaving:
            self._empty()
        elif self._takers:
            while self._separate() or self._balance():
                pass
            self._explain()
        if self._is_cut_short:
            self._refuse("", "the plan is limited; run it again when its moves have ended")
        return BalancePlan(
            moves=tuple(self._moves(has_elections=not leaving)),
            unmoved=tuple(self._unmoved),
            before=self._before,
            after=self._now.totals(),
        )

    def _moves(self, *, has_elections: bool) -> Iterator[PlannedMove]:
        """Yield the moves of the plan: first elections, then copies in the order in which the
        search found them."""
        copies = []
        for index, reasons in self._reasons.items():
            partition = self._now.partitions[index]
            move = PlannedMove(
                partition.at,
                partition.replicas,
                self._now.replicas[index],
                partition.size_bytes,
                ", ".join(reasons),
            )
            if move.adding:
                copies.append(move)
            elif move.before != move.after:
                yield move
        for index in self._movable if has_elections else ():
            partition = self._now.partitions[index]
            replicas = self._now.replicas[index]
            if replicas == partition.replicas and partition.leader != replicas[0]:
                reason = f"leader {partition.leader} is not the preferred one"
                yield PlannedMove(partition.at, replicas, replicas, partition.size_bytes, reason)
        yield from copies

    # --- leaving brokers and shared failure domains ------------------------------------------

    def _empty(self) -> None:
        for index in self._movable:
            for giver in self._now.replicas[index]:
                if giver in self._load.leaving:
                    self._replace(index, giver, f"empties broker {giver}")

    def _separate(self) -> bool:
        """Move replicas that share a rack or host although there are enough racks or hosts. Returns
        True if any replica moved."""
        has_moved = False
        domains = {self._now.brokers[one].domain for one in self._takers}
        rack_count, host_count = len({rack for rack, _ in domains}), len(domains)
        for index in self._movable:
            replicas = self._now.replicas[index]
            racks, hosts = self._now.collisions(replicas)
            fewest = max(0, len(replicas) - rack_count), max(0, len(replicas) - host_count)
            if racks > fewest[0] or hosts > fewest[1]:
                has_moved |= self._separate_one(index)
        return has_moved

    def _separate_one(self, index: int) -> bool:
        replicas = self._now.replicas[index]
        for giver in reversed(replicas):
            others = tuple(one for one in replicas if one != giver)
            is_shared = self._now.collisions(replicas) > self._now.collisions(others)
            if is_shared and self._replace(
                index, giver, "shares a rack or host", is_separating=True
            ):
                return True
        return False

    def _replace(
        self, index: int, giver: NodeId, reason: str, *, is_separating: bool = False
    ) -> bool:
        """Replace one replica by a replica on the best broker. Returns False if no broker is
        suitable."""
        now = self._now
        obstacles: Counter[Obstacle] = Counter()
        best = None
        for taker in self._takers:
            obstacle = now.obstacle(index, giver, taker)
            if obstacle is not None:
                obstacles[obstacle] += 1
                continue
            after = tuple(taker if one == giver else one for one in now.replicas[index])
            collisions = now.collisions(after)
            if is_separating and collisions >= now.collisions(now.replicas[index]):
                obstacles[Obstacle.DOMAIN] += 1
                continue
            fill = now.bytes[taker] / self._weights[taker]
            key = (collisions, fill, now.counts[taker], taker)
            best = key if best is None else min(best, key)
        if best is not None and self._may_change(index):
            now.replace(index, giver, best[-1])
            self._note(index, reason)
            return True
        if best is None:
            at = str(now.partitions[index].at)
            # A broker that has a replica is no obstacle that an operator could remove.
            others = obstacles.copy()
            del others[Obstacle.HELD]
            self._refuse(at, f"{reason}; {_most_frequent(others or obstacles)}")
        return False

    # --- balance -----------------------------------------------------------------------------

    def _balance(self) -> bool:
        """Pursue each goal of the balance once. Returns False if nothing was moved."""
        has_moved = False
        for goal in (self._balance_bytes, self._balance_replicas, self._balance_leaders):
            while goal():
                has_moved = True
        return has_moved

    def _byte_band(self) -> Band:
        return Band(
            self._now.bytes,
            self._weights,
            tolerance_percent=self._limits.tolerance_percent,
            ignored=self._limits.ignored_bytes,
        )

    def _count_band(self, loads: dict[NodeId, int]) -> Band:
        weights = dict.fromkeys(self._takers, 1)
        return Band(loads, weights, tolerance_percent=self._limits.tolerance_percent)

    def _balance_bytes(self) -> bool:
        band = self._byte_band()
        return self._pass("bytes", band, band)

    def _balance_replicas(self) -> bool:
        return self._pass("replicas", self._count_band(self._now.counts), self._byte_band())

    def _pass(self, goal: str, band: Band, byte_band: Band) -> bool:
        """Move replicas, always from the most loaded broker that can still give up a replica.
        Returns True if any replica moved."""
        for broker in self._takers:
            self._obstacles.pop((goal, broker), None)
        has_moved = False
        hindered: set[NodeId] = set()
        while True:
            # The most loaded broker changes with each move: a broker that continued to give would
            # fall below the mean before the others reach it.
            givers = (one for one in band.by_load(is_descending=True) if one not in hindered)
            giver = next(iter(givers), None)
            if giver is None:
                return has_moved
            if self._give(goal, giver, band, byte_band):
                has_moved = True
            else:
                hindered.add(giver)

    def _give(self, goal: str, giver: NodeId, band: Band, byte_band: Band) -> bool:
        """Move one replica from `giver` to the least loaded broker that may receive it. Returns
        False if no broker may receive a replica."""
        for taker in band.by_load():
            if band.relative(taker) >= band.relative(giver):
                return False
            if not band.over(giver) and not band.under(taker):
                return False
            self._work_left -= 1
            if goal == "bytes":
                candidates = self._by_size(giver, taker, band)
            else:
                candidates = self._smallest(giver, taker, band, byte_band)
            for scanned, index in enumerate(candidates):
                self._work_left -= 1
                if self._work_left <= 0:
                    self._is_cut_short = True
                    return False
                if scanned == SCANNED_MAX:
                    break
                obstacle = self._now.obstacle(index, giver, taker)
                if obstacle is not None:
                    self._hinder(goal, giver, taker, obstacle)
                elif self._may_change(index):
                    self._now.replace(index, giver, taker)
                    self._note(index, f"{goal} of broker {giver}")
                    return True
        return False

    def _by_size(self, giver: NodeId, taker: NodeId, band: Band) -> Iterator[int]:
        """Yield the partitions whose move from `giver` to `taker` improves the balance of bytes.

        The first is the smallest partition that suffices for a broker to reach the band. Larger
        partitions follow, then smaller partitions in descending order of size.
        """
        held = self._now.held[giver]
        start = bisect_left(held, (max(band.over(giver), band.under(taker)), -1))
        for position in range(start, len(held)):
            size, index = held[position]
            if band.effect(giver, taker, size) >= 0:
                break
            yield index
        for position in range(start - 1, -1, -1):
            size, index = held[position]
            if band.effect(giver, taker, size) >= 0:
                break
            yield index
        self._hinder("bytes", giver, taker, Obstacle.EFFECT)

    def _smallest(self, giver: NodeId, taker: NodeId, band: Band, bytes_: Band) -> Iterator[int]:
        """Yield the partitions whose move improves the balance of replica counts without worsening
        the balance of bytes, smallest first."""
        if band.effect(giver, taker, 1) >= 0:
            self._hinder("replicas", giver, taker, Obstacle.EFFECT)
            return
        for size, index in self._now.held[giver]:
            # The effect is a convex function of the size, and 0 without a move: once it is
            # positive, it is so for all larger sizes.
            if bytes_.effect(giver, taker, size) > 0:
                self._hinder("replicas", giver, taker, Obstacle.BYTES)
                return
            yield index

    def _balance_leaders(self) -> bool:
        """Change preferred leaders if that improves the balance. Returns True if any was changed.

        Each partition of a broker above the band is examined, and then each partition of a broker
        below it. The second step is needed because the brokers with too many leaderships may all be
        within the band.
        """
        band = self._count_band(self._now.leaders)
        for broker in self._takers:
            self._obstacles.pop(("leaders", broker), None)
        has_moved = False
        for broker in band.outside():
            for _, index in list(self._now.held[broker]):
                self._work_left -= 1
                if self._work_left <= 0:
                    self._is_cut_short = True
                    return has_moved
                if not band.excess(broker):
                    break
                has_moved |= self._elect(index, broker, band)
        return has_moved

    def _elect(self, index: int, broker: NodeId, band: Band) -> bool:
        """Change the preferred leader of one partition if this improves the balance of a broker.
        Returns True if it changed."""
        giver, *others = self._now.replicas[index]
        takers = [one for one in others if one in self._weights]
        if giver not in self._weights or broker not in (giver, *takers):
            return False
        if broker != giver and band.deviation(broker) > 0:
            return False
        if broker == giver and band.deviation(broker) < 0:
            return False
        pool = takers if broker == giver else [broker]
        taker = min(pool, key=lambda one: (band.relative(one), one), default=None)
        if taker is None or band.effect(giver, taker, 1) >= 0:
            self._obstacles["leaders", broker][Obstacle.EFFECT] += 1
            return False
        if not self._may_change(index):
            return False
        self._now.lead(index, taker)
        self._note(index, f"leaders of broker {giver}")
        return True

    # --- limits and reasons ------------------------------------------------------------------

    def _may_change(self, index: int) -> bool:
        if index in self._reasons or len(self._reasons) < self._limits.moves_max:
            return True
        self._is_cut_short = True
        return False

    def _note(self, index: int, reason: str) -> None:
        self._reasons.setdefault(index, {})[reason] = None

    def _hinder(self, goal: str, giver: NodeId, taker: NodeId, obstacle: Obstacle) -> None:
        self._obstacles[goal, giver][obstacle] += 1
        self._obstacles[goal, taker][obstacle] += 1

    def _explain(self) -> None:
        """Add to the plan the reason why each broker outside a band remains there."""
        bands = {
            "bytes": self._byte_band(),
            "replicas": self._count_band(self._now.counts),
            "leaders": self._count_band(self._now.leaders),
        }
        for goal, band in bands.items():
            for broker in band.outside():
                if goal != "bytes" and abs(band.deviation(broker)) < band.scale:
                    continue  # It has the mean, rounded.
                percent = band.percent(broker)
                deviation = f"{abs(percent)} % {'more' if percent > 0 else 'fewer'} {goal}"
                cause = _most_frequent(self._obstacles[goal, broker])
                self._refuse(f"broker {broker}", f"{deviation} than the mean; {cause}")

    def _refuse(self, subject: str, reason: str) -> None:
        self._unmoved[UnmovedReason(subject, reason)] = None


def _most_frequent(obstacles: Counter[Obstacle]) -> str:
    if not obstacles:
        return "no partition of it may move"
    return max(obstacles, key=lambda one: (obstacles[one], one.name)).value
