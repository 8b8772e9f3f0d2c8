"""Places for connections, shared fairly among the addresses of their peers."""

from random import Random

import pytest

from ottla.controller.front.fair_places import FairPlaces


def places_of(count: int, *, is_oldest_replaced: bool) -> FairPlaces[str]:
    return FairPlaces(count, is_oldest_replaced=is_oldest_replaced)


def test_a_connection_takes_a_free_place() -> None:
    places = places_of(2, is_oldest_replaced=True)
    assert [places.take("a", "x"), places.take("b", "y")] == [None, None]
    assert places.is_full
    places.free("a", "x")
    places.free("a", "x")
    assert len(places) == 1


@pytest.mark.parametrize(("is_oldest_replaced", "replaced"), [(True, "a"), (False, "b")])
def test_the_address_with_most_places_loses_one(is_oldest_replaced: bool, replaced: str) -> None:
    places = places_of(2, is_oldest_replaced=is_oldest_replaced)
    places.take("a", "x")
    places.take("b", "x")
    assert places.take("c", "y") == replaced
    assert (places.count_of("x"), places.count_of("y")) == (1, 1)


@pytest.mark.parametrize(("is_oldest_replaced", "replaced"), [(True, "b"), (False, "c")])
def test_an_address_with_as_many_as_any_replaces_its_own(
    is_oldest_replaced: bool, replaced: str
) -> None:
    places = places_of(2, is_oldest_replaced=is_oldest_replaced)
    places.take("a", "x")
    places.take("b", "y")
    assert places.take("c", "y") == replaced


def test_an_address_never_loses_a_place_to_one_that_has_more() -> None:
    rng = Random(3)
    places = places_of(50, is_oldest_replaced=False)
    hosts: dict[str, str] = {}
    for number in range(5_000):
        host = rng.choice(["10.0.0.1"] * 8 + [f"10.0.1.{rng.randrange(20)}"])
        key = str(number)
        before = {one: places.count_of(one) for one in {*hosts.values(), host}}
        hosts[key] = host
        replaced = places.take(key, host)
        if replaced is not None:
            loser = hosts.pop(replaced)
            assert before[loser] + (loser == host) >= before[host] + 1
        elif rng.random() < 0.3:
            gone = rng.choice(list(hosts))
            places.free(gone, hosts.pop(gone))
        assert len(places) == len(hosts) <= 50
