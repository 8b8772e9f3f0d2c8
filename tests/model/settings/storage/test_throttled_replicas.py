"""Lists of throttled replicas, as Kafka's own tools write them."""

import pytest

from ottla.model.errors import ConfigError
from ottla.model.settings.storage.throttled_replicas import ThrottledReplicas, throttled_replicas
from ottla.model.settings.storage.topic import TOPIC_DEFINITIONS


def test_an_empty_list_throttles_nothing() -> None:
    none = throttled_replicas(" ")

    assert not none
    assert str(none) == ""
    assert not none.has(0, 1)


def test_a_star_throttles_every_replica() -> None:
    every = throttled_replicas("*")

    assert every.has(0, 1)
    assert every.has(99, 4)
    assert str(every) == "*"


def test_a_list_throttles_what_it_names() -> None:
    some = throttled_replicas("10:2, 0:1,0:1,")

    assert some == ThrottledReplicas(frozenset({(0, 1), (10, 2)}))
    assert [some.has(*one) for one in ((0, 1), (10, 2), (1, 0), (0, 2))] == [
        True,
        True,
        False,
        False,
    ]
    assert str(some) == "0:1,10:2"


@pytest.mark.parametrize("text", ["0", "0:1:2", "*,0:1", "a:1", "-1:1", "0:1;1:1", "none"])
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    definition = TOPIC_DEFINITIONS["leader.replication.throttled.replicas"]

    with pytest.raises(ConfigError, match=r"\* or a list of PARTITION:BROKER"):
        definition.value_of(text)
