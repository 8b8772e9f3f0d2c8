"""The world's network: what each of its faults does to a message."""

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.timed.net import CALM, Net, NetWeather, swarm_weather
from ottla.jepsen.world.timed.timeline import SECOND, Timeline

NODES = (1, 2, 3, 4, 5)


class Post:
    """A network, and what arrived over it."""

    def __init__(self, weather: NetWeather = CALM, nodes: tuple[int, ...] = NODES) -> None:
        self.timeline = Timeline()
        self.net = Net(self.timeline, Chance(1), nodes, weather)
        self.arrived: list[tuple[int, int]] = []

    def send(self, sender: int, receiver: int, times: int = 1) -> None:
        for _ in range(times):
            self.net.send(sender, receiver, lambda: self.arrived.append((sender, receiver)))

    def wait(self) -> None:
        self.timeline.run_until(self.timeline.now_us + 10 * SECOND)


def test_a_calm_link_delivers_once_and_takes_time() -> None:
    post = Post()

    post.send(1, 2)

    assert post.arrived == []
    post.wait()
    assert post.arrived == [(1, 2)]


def test_messages_are_lost_repeated_and_overtaken() -> None:
    lossy, repeating = Post(NetWeather(drop=0.5)), Post(NetWeather(repeat=0.5))
    for post in (lossy, repeating):
        post.send(1, 2, times=200)
        post.wait()
    order: list[int] = []
    shuffled = Post()
    for number in range(50):
        shuffled.net.send(1, 2, lambda number=number: order.append(number))  # type: ignore[misc]
    shuffled.wait()

    assert 50 < len(lossy.arrived) < 150
    assert 250 < len(repeating.arrived) < 350
    assert sorted(order) == list(range(50)) != order


def test_sides_do_not_hear_each_other_until_they_are_healed() -> None:
    post = Post()
    post.net.part([1, 2], [3, 4])

    for way in ((1, 2), (2, 3), (4, 3), (5, 1), (1, 5)):
        post.send(*way)
    post.wait()
    assert sorted(post.arrived) == [(1, 2), (4, 3)]
    post.net.heal()
    post.send(2, 3)
    post.wait()

    assert post.arrived[-1] == (2, 3)
    assert post.net.is_whole


def test_a_cut_counts_for_what_is_under_way_too() -> None:
    post = Post()
    post.send(1, 2)
    post.net.cut(1, 2)
    post.send(2, 1)

    post.wait()

    assert post.arrived == [(2, 1)]


def test_a_clogged_link_keeps_messages_and_lets_them_go_later() -> None:
    post = Post()
    post.net.clog(1, 2)
    post.send(1, 2, times=3)
    post.wait()
    assert post.arrived == []

    post.net.unclog()
    post.wait()

    assert post.arrived == [(1, 2)] * 3


def test_in_a_ring_everybody_reaches_a_majority_and_nobody_all() -> None:
    for count in (3, 5):
        nodes = NODES[:count]
        post = Post(nodes=nodes)
        post.net._ring(1)
        reached = {
            node: {node, *(other for other in nodes if post.net.may_reach(node, other))}
            for node in nodes
        }

        assert all(len(each) > count // 2 for each in reached.values())
        assert sum(len(each) < count for each in reached.values()) >= 2


def test_every_kind_of_fault_comes_up_and_half_of_the_worlds_lack_each() -> None:
    chance = Chance(5)
    net = Post().net
    kinds = {net.misbehave(chance) for _ in range(200)}
    drawn = [swarm_weather(chance) for _ in range(200)]

    assert kinds == {
        "heal", "isolate one", "part in two", "majorities ring", "one way", "clog"
    }  # fmt: skip
    assert 60 < sum(weather.drop == 0 for weather in drawn) < 140
    assert 60 < sum(weather.repeat == 0 for weather in drawn) < 140


def test_clogged_ways_are_let_go_one_at_a_time() -> None:
    post = Post()
    post.net.clog(1, 2)
    post.net.clog(1, 3)
    post.send(1, 2)
    post.send(1, 3)
    post.wait()

    post.net.unclog_one(1, 3)
    post.net.unclog_one(4, 5)
    post.wait()

    assert post.arrived == [(1, 3)]
    assert not post.net.is_whole
