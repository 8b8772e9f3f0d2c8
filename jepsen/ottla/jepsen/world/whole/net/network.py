"""The network between simulated machines. It delays messages, cuts links and breaks connections.

All messages in flight are in one heap, and one task delivers them. A message over a cut link is not
lost: it waits, as TCP would retransmit it, and is delivered after the link has healed. The
connections of a killed process are closed. A machine without power does not respond until it runs
again. No code of a machine runs here: deliveries only store data where the machine's tasks find it.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import trio

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.whole.loop import next_instant

Deliver = Callable[[], None]

GAP_S_MAX = 0.3
"""Longest delay in seconds between the two pieces of a network message. Most are far shorter."""

REPEAT_S_MAX = 0.3
"""Longest delay in seconds between the healing of a cut link and the delivery of messages that it
held back. TCP backs off its retransmissions."""


@dataclass(slots=True)
class Quality:
    """Quality of the simulated network links in a run while no fault is active."""

    delay_s: float = 0.000_2
    jitter_s: float = 0.000_3
    break_p: float = 0.0
    """Probability that a network message breaks its connection."""
    split_p: float = 0.0
    """Probability that a network message arrives in two pieces, with a gap between them."""


class Host:
    """State of one machine in the simulated network."""

    __slots__ = ("endings", "is_silent", "is_up", "life", "name", "slow_s")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_up = False
        self.is_silent = False
        """True if the machine has no power. Attempts to connect to it then get no response."""
        self.life = 0
        """Number of processes on this machine so far. Network messages to one process are not
        delivered to the next."""
        self.slow_s = 0.0
        """Delay in seconds that is added to every message of this machine, as by a bad cable."""
        self.endings: dict[Deliver, None] = {}
        """Network messages to deliver to the peers of this machine when its process ends."""


class SimulatedNetwork:
    """All machines in the simulated network, and the messages in flight between them."""

    def __init__(self, chance: Chance, trace: Trace, rare: RareStates) -> None:
        self.trace = trace
        self.rare = rare
        self.quality = Quality()
        self.hosts: dict[str, Host] = {}
        self.message_count = 0
        self._chance = chance
        self._on_its_way: list[tuple[float, int, Deliver]] = []
        self._number = 0
        self._cuts: set[tuple[str, str]] = set()
        self._stuck: dict[tuple[str, str], list[Deliver]] = {}
        self._orphaned: dict[str, list[Deliver]] = {}
        self._sleep = trio.CancelScope()

    def host(self, name: str) -> Host:
        """Return the network state (`Host`) of a machine, which is created at first use."""
        found = self.hosts.get(name)
        if found is None:
            found = self.hosts[name] = Host(name)
        return found

    # ---- sending

    def send(self, source: str, target: str, deliver: Deliver, *, not_before: float = 0.0) -> float:
        """Call `deliver` after the link's delay, or after the link has healed if it is cut. Returns
        the virtual time of delivery in seconds."""
        self.message_count += 1
        link = (source, target)
        if link in self._cuts:
            self._stuck.setdefault(link, []).append(deliver)
            return 0.0
        at = max(trio.current_time() + self._delay_s(source, target), not_before)
        self.call_at(at, deliver)
        return at

    def breaks(self) -> bool:
        """Return whether the next network message breaks its connection, decided at random."""
        p = self.quality.break_p
        if not p or self._chance.random() >= p:
            return False
        self.rare.sometimes("a connection breaks")
        return True

    def cut_of(self, size: int) -> int:
        """Return the number of bytes in the first of two pieces into which a message of `size`
        bytes is split, or 0 if it is not split."""
        p = self.quality.split_p
        if not p or size < 2 or self._chance.random() >= p:
            return 0
        self.rare.sometimes("a message comes in pieces")
        return 1 + self._chance.below(size - 1)

    def end_of_gap(self) -> float:
        """Return the virtual time at which the second piece of a network message that was split in
        two is sent."""
        return trio.current_time() + GAP_S_MAX * self._chance.random() ** 8

    def is_cut(self, source: str, target: str) -> bool:
        """Return whether the link from `source` to `target` is cut."""
        return (source, target) in self._cuts

    def call_at(self, at: float, action: Deliver) -> None:
        """Call `action` at the virtual time `at`, in seconds."""
        at = next_instant(at)
        self._number += 1
        heapq.heappush(self._on_its_way, (at, self._number, action))
        if at < self._sleep.deadline:
            self._sleep.deadline = at

    async def run(self) -> NoReturn:
        """Deliver the network messages that are due, until cancelled."""
        heap = self._on_its_way
        while True:
            now = trio.current_time()
            while heap and heap[0][0] <= now:
                heapq.heappop(heap)[2]()
            with trio.CancelScope(deadline=heap[0][0] if heap else float("inf")) as self._sleep:
                await trio.sleep_forever()

    def _delay_s(self, source: str, target: str) -> float:
        quality = self.quality
        slow_s = self.hosts[source].slow_s + self.hosts[target].slow_s
        share = self._chance.random()
        return quality.delay_s + (quality.jitter_s + slow_s) * (share + share**8)

    # ---- faults

    @property
    def is_troubled(self) -> bool:
        """True if a network link is worse than it was at the start of the run."""
        is_slow = any(host.slow_s for host in self.hosts.values())
        return bool(self._cuts or self._stuck or self.quality.break_p or is_slow)

    def cut(self, source: str, target: str) -> None:
        """Cut the link from `source` to `target`. Later messages on the link are held back."""
        self._cuts.add((source, target))

    def mend(self, source: str, target: str) -> None:
        """Heal the link from `source` to `target`. The messages that were held back are then
        delivered in their order."""
        self._cuts.discard((source, target))
        self._deliver_later(self._stuck.pop((source, target), []))

    def heal(self) -> None:
        """Heal every network link. The messages that were held back are then delivered in their
        order."""
        self._cuts.clear()
        stuck, self._stuck = self._stuck, {}
        for waiting in stuck.values():
            self._deliver_later(waiting)

    def _deliver_later(self, waiting: list[Deliver]) -> None:
        at = trio.current_time() + self._chance.random() * REPEAT_S_MAX
        for deliver in waiting:
            self.call_at(at, deliver)

    def on_start(self, host: Host) -> None:
        """Handle the start of a process on a machine. Network messages to earlier processes of this
        machine now get a reset as response."""
        host.is_up = True
        host.is_silent = False
        host.life += 1
        for ending in self._orphaned.pop(host.name, ()):
            ending()

    def on_end(self, host: Host, *, is_silent: bool) -> None:
        """Handle the end of a process on a machine: the kernel closes its connections, unless the
        machine has lost power as well."""
        host.is_up = False
        host.is_silent = is_silent
        endings, host.endings = host.endings, {}
        if is_silent:
            self._orphaned.setdefault(host.name, []).extend(endings)
        else:
            for ending in endings:
                ending()
