"""The network between the world's machines: it delays, holds back, cuts and breaks.

One heap holds what is on its way, and one task delivers.  What is sent over a cut link is not lost:
it waits, as TCP would repeat it, and arrives after the link has healed.  A process that is killed
hangs up; a machine that loses power says nothing until it runs again.  Nothing of a machine's own
runs here: deliveries only put things down where its tasks find them.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import trio

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.rare import Rare
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.whole.loop import next_instant

Deliver = Callable[[], None]

GAP_S_MAX = 0.3
"""Between the pieces of a message, mostly far less."""

REPEAT_S_MAX = 0.3
"""How long after a link has healed what waited may take: TCP repeats ever more seldom."""


@dataclass(slots=True)
class Quality:
    """How the links of a run are, when nothing is wrong with them."""

    delay_s: float = 0.000_2
    jitter_s: float = 0.000_3
    break_p: float = 0.0
    """How likely a message breaks the connection it is on."""
    split_p: float = 0.0
    """How likely a message arrives in two pieces, with a gap between them."""


class Host:
    """One machine's place in the network."""

    __slots__ = ("endings", "is_silent", "is_up", "life", "name", "slow_s")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_up = False
        self.is_silent = False
        """Its power is gone: nobody is even refused."""
        self.life = 0
        """Counts processes, so that what was meant for one is not given to the next."""
        self.slow_s = 0.0
        """What a bad cable adds to every message."""
        self.endings: dict[Deliver, None] = {}
        """What peers must be told when its process ends."""


class SimulatedNetwork:
    """All hosts and what is on its way between them."""

    def __init__(self, chance: Chance, trace: Trace, rare: Rare) -> None:
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
        """Return a machine's place, made when new."""
        found = self.hosts.get(name)
        if found is None:
            found = self.hosts[name] = Host(name)
        return found

    # ---- what is sent

    def send(self, source: str, target: str, deliver: Deliver, *, not_before: float = 0.0) -> float:
        """Deliver after the link's delay, or once it has healed; return when that would be."""
        self.message_count += 1
        link = (source, target)
        if link in self._cuts:
            self._stuck.setdefault(link, []).append(deliver)
            return 0.0
        at = max(trio.current_time() + self._delay_s(source, target), not_before)
        self.call_at(at, deliver)
        return at

    def breaks(self) -> bool:
        """Return whether this message breaks its connection."""
        p = self.quality.break_p
        if not p or self._chance.random() >= p:
            return False
        self.rare.sometimes("a connection breaks")
        return True

    def cut_of(self, size: int) -> int:
        """Return after how many bytes a message is cut in two; 0 where it is not."""
        p = self.quality.split_p
        if not p or size < 2 or self._chance.random() >= p:
            return 0
        self.rare.sometimes("a message comes in pieces")
        return 1 + self._chance.below(size - 1)

    def end_of_gap(self) -> float:
        """Return when the second piece of a message leaves."""
        return trio.current_time() + GAP_S_MAX * self._chance.random() ** 8

    def is_cut(self, source: str, target: str) -> bool:
        """Return whether nothing arrives on a link now."""
        return (source, target) in self._cuts

    def call_at(self, at: float, action: Deliver) -> None:
        """Act at a time."""
        at = next_instant(at)
        self._number += 1
        heapq.heappush(self._on_its_way, (at, self._number, action))
        if at < self._sleep.deadline:
            self._sleep.deadline = at

    async def run(self) -> NoReturn:
        """Deliver what is due, until cancelled."""
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

    # ---- what goes wrong

    @property
    def is_troubled(self) -> bool:
        """Whether any link is worse than it was at the start."""
        is_slow = any(host.slow_s for host in self.hosts.values())
        return bool(self._cuts or self._stuck or self.quality.break_p or is_slow)

    def cut(self, source: str, target: str) -> None:
        """Hold back all that goes this way from now on."""
        self._cuts.add((source, target))

    def heal(self) -> None:
        """Mend every link; what was held back arrives in its order."""
        self._cuts.clear()
        stuck, self._stuck = self._stuck, {}
        now = trio.current_time()
        for waiting in stuck.values():
            at = now + self._chance.random() * REPEAT_S_MAX
            for deliver in waiting:
                self.call_at(at, deliver)

    def on_start(self, host: Host) -> None:
        """A process begins: the machine answers what was meant for an earlier one with a reset."""
        host.is_up = True
        host.is_silent = False
        host.life += 1
        for ending in self._orphaned.pop(host.name, ()):
            ending()

    def on_end(self, host: Host, *, is_silent: bool) -> None:
        """A process is gone: the kernel hangs up for it, unless the power is gone too."""
        host.is_up = False
        host.is_silent = is_silent
        endings, host.endings = host.endings, {}
        if is_silent:
            self._orphaned.setdefault(host.name, []).extend(endings)
        else:
            for ending in endings:
                ending()
