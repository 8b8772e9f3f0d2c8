"""Faults of the network add up, and each is lifted by its name alone."""

import pytest

from ottla.jepsen.processes.network_links import (
    CLIENTS,
    Links,
    cut,
    isolate,
    lossy,
    majorities_ring,
    slow,
    split,
)

NODES = ("c1", "c2", "c3", "b1", "b2", "b3")


def hears(links: Links, receiver: str, sender: str) -> bool:
    """Return whether anything arrives."""
    return links.lost(sender, receiver) < 1


def test_a_one_way_cut_leaves_the_way_back() -> None:
    links = Links(NODES)
    links.put("cut", cut("b1", "b2", one_way=True))
    assert not hears(links, "b2", "b1")
    assert hears(links, "b1", "b2")


def test_two_faults_that_cut_the_same_link_are_lifted_one_by_one() -> None:
    links = Links(NODES)
    links.put("first", cut("b1", "b2"))
    links.put("second", isolate("b1", NODES))
    links.lift("first")
    assert not hears(links, "b2", "b1")
    links.lift("second")
    assert hears(links, "b2", "b1")
    assert links.is_well


def test_the_worst_of_several_losses_and_rates_holds() -> None:
    links = Links(NODES)
    links.put("much", lossy(["b1"], ["b2"], 0.5))
    links.put("little", lossy(["b1", "b3"], [*NODES, CLIENTS], 0.1))
    links.put("slow", slow(["b1"], 1_000))
    links.put("slower", slow(["b1", "b2"], 100))
    assert links.lost_to("b1") == {
        **dict.fromkeys(("c1", "c2", "c3", "b3", CLIENTS), 0.1),
        "b2": 0.5,
    }
    assert links.lost_to("c1") == {"b1": 0.1, "b3": 0.1}
    assert [links.rate_of(node) for node in ("b1", "b2", "b3")] == [100, 100, None]


def test_an_isolated_node_still_hears_clients_unless_they_are_cut_too() -> None:
    links = Links(NODES)
    links.put("isolate", isolate("b1", NODES))
    assert hears(links, "b1", CLIENTS)
    links.put("isolate", isolate("b1", NODES, clients=True))
    assert not hears(links, "b1", CLIENTS)
    assert links.lost("b1", CLIENTS) == 1


def test_a_split_cuts_across_and_never_within() -> None:
    links = Links(NODES)
    links.put("split", split([NODES[:2], NODES[2:]]))
    for sender in NODES:
        for receiver in NODES:
            is_across = (sender in NODES[:2]) != (receiver in NODES[:2])
            assert hears(links, receiver, sender) != is_across


@pytest.mark.parametrize("count", range(3, 10))
def test_in_a_ring_each_hears_a_majority_and_no_two_the_same(count: int) -> None:
    ring = [f"b{at}" for at in range(count)]
    links = Links(ring)
    links.put("ring", majorities_ring(ring))
    heard = [frozenset(other for other in ring if hears(links, one, other)) for one in ring]
    assert all(len(each) > count // 2 for each in heard)
    assert any(len(each) < count for each in heard)
    if count > 3:
        assert len(set(heard)) == count
