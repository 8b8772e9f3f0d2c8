"""The world's network: links that delay, drop, repeat, reorder, clog, and part in every way.

How bad it is, is drawn for each seed (swarm): each kind of fault is off in half of the worlds.
Nothing is ever changed on its way; a clogged link keeps what it was given and lets it go late.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.timed.timeline import MS, Timeline

Node = Hashable
Deliver = Callable[[], None]


@dataclass(slots=True, kw_only=True)
class NetWeather:
    """How links behave; chances in `[0, 1)`, times in microseconds."""

    delay_us_min: int = 100
    delay_us_mean: int = 500
    """Of the part that is drawn, exponentially, on top of the least."""
    drop: float = 0.0
    repeat: float = 0.0
    straggle: float = 0.0
    """Chance of a message that takes a hundred times as long, and is overtaken."""


CALM = NetWeather()


def swarm_weather(chance: Chance) -> NetWeather:
    """Draw a network: each fault off in half of the worlds, else of a drawn strength."""

    def strength(most: float) -> float:
        return 0.0 if chance.below(2) == 0 else most * (1 + chance.below(10)) / 10

    return NetWeather(
        delay_us_min=100,
        delay_us_mean=(500, 2 * MS, 20 * MS, 100 * MS)[chance.below(4)],
        drop=strength(0.3),
        repeat=strength(0.3),
        straggle=strength(0.1),
    )


class Net:
    """All links between some nodes."""

    def __init__(
        self, timeline: Timeline, chance: Chance, nodes: Sequence[Node], weather: NetWeather
    ) -> None:
        self.weather = weather
        self.figures = {"messages": 0, "dropped": 0, "repeated": 0, "cut off": 0}
        self._timeline = timeline
        self._chance = chance
        self._nodes = list(nodes)
        self._cut: set[tuple[Node, Node]] = set()
        self._clogged: dict[tuple[Node, Node], list[Deliver]] = {}

    # --- messages -----------------------------------------------------------------------------

    def send(self, sender: Node, receiver: Node, deliver: Deliver) -> None:
        """Have a message arrive: once, later, twice or never."""
        chance, weather, figures = self._chance, self.weather, self.figures
        figures["messages"] += 1
        copy_count = 1
        if weather.repeat and chance.chance(weather.repeat):
            figures["repeated"] += 1
            copy_count = 2
        for _ in range(copy_count):
            if weather.drop and chance.chance(weather.drop):
                figures["dropped"] += 1
                continue
            delay_us = self._delay_us()
            self._timeline.later(delay_us, lambda: self._arrive(sender, receiver, deliver))

    def _delay_us(self) -> int:
        weather = self.weather
        delay_us = -weather.delay_us_mean * math.log(1.0 - self._chance.random())
        if weather.straggle and self._chance.chance(weather.straggle):
            delay_us *= 100
        return weather.delay_us_min + int(delay_us)

    def _arrive(self, sender: Node, receiver: Node, deliver: Deliver) -> None:
        way = (sender, receiver)
        if way in self._cut:
            self.figures["cut off"] += 1
        elif way in self._clogged:
            self._clogged[way].append(deliver)
        else:
            deliver()

    # --- faults -------------------------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        """Say whether every message may get through."""
        return not self._cut and not self._clogged

    def may_reach(self, sender: Node, receiver: Node) -> bool:
        """Say whether a message of one would arrive at the other now."""
        return (sender, receiver) not in self._cut

    def part(self, *sides: Sequence[Node]) -> None:
        """Cut every way between nodes of different sides; who is on none is alone."""
        side_of = {node: at for at, side in enumerate(sides) for node in side}
        alone = len(sides)
        for at, node in enumerate(self._nodes):
            side_of.setdefault(node, alone + at)
        self._cut = {
            (a, b) for a in self._nodes for b in self._nodes if a != b and side_of[a] != side_of[b]
        }

    def cut(self, sender: Node, receiver: Node) -> None:
        """Cut one way; answers still get back."""
        self._cut.add((sender, receiver))

    def clog(self, sender: Node, receiver: Node) -> None:
        """Hold back what one sends to the other until `heal` or `unclog`."""
        self._clogged.setdefault((sender, receiver), [])

    def unclog(self) -> None:
        """Let everything go that was held back."""
        clogged, self._clogged = self._clogged, {}
        for way in sorted(clogged, key=repr):
            for deliver in clogged[way]:
                self._timeline.later(self._delay_us(), deliver)

    def unclog_one(self, sender: Node, receiver: Node) -> None:
        """Let go what one way held back."""
        for deliver in self._clogged.pop((sender, receiver), []):
            self._timeline.later(self._delay_us(), deliver)

    def heal(self) -> None:
        """Let every message through again."""
        self._cut = set()
        self.unclog()

    def misbehave(self, chance: Chance) -> str:
        """Do one of the network's faults, drawn from `chance`; return its name."""
        nodes, count = self._nodes, len(self._nodes)
        kind = chance.below(6)
        lonely = nodes[chance.below(count)]
        others = [node for node in nodes if node != lonely]
        if kind == 0:
            self.heal()
            return "heal"
        if kind == 1:
            self.part([lonely], others)
            return "isolate one"
        if kind == 2:
            order = [nodes[(nodes.index(lonely) + step) % count] for step in range(count)]
            size = 1 + chance.below(max(1, count - 1))
            self.part(order[:size], order[size:])
            return "part in two"
        if kind == 3:
            self._ring(lonely)
            return "majorities ring"
        if kind == 4:
            is_deaf = chance.below(2)
            for other in others:
                self.cut(other, lonely) if is_deaf else self.cut(lonely, other)
            return "one way"
        for other in others:
            if chance.below(2):
                self.clog(lonely, other)
        return "clog"

    def _ring(self, first: Node) -> None:
        """Let everybody see a majority, and no two the same one."""
        count = len(self._nodes)
        start = self._nodes.index(first)
        reach = (count // 2 + 1) // 2
        self._cut = set()
        for at in range(count):
            for step in range(reach + 1, count - reach):
                a, b = self._nodes[(start + at) % count], self._nodes[(start + at + step) % count]
                self._cut |= {(a, b), (b, a)}
        if count == 3:  # a line: the two ends see the middle only
            a, b = self._nodes[start], self._nodes[(start + 1) % count]
            self._cut = {(a, b), (b, a)}
