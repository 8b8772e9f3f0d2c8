"""Names of keys can be parsed, and topics are replaced before their logs grow long."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ottla.jepsen.workloads.keys import READY_COUNT, Topics, key_of, partition_of


@given(st.text("abc-.0", min_size=1), st.integers(0, 99))
def test_a_key_is_its_topic_and_its_partition(topic: str, partition: int) -> None:
    assert partition_of(key_of(topic, partition)) == (topic, partition)


@given(st.integers(0, 999), st.integers(1, 20), st.sampled_from([0.0, 0.3]))
def test_no_key_gets_a_value_twice_nor_more_than_it_may_have_where_topics_can_be_made(
    seed: int, values_max: int, troubles: float
) -> None:
    rng = Random(seed)
    topics = Topics("p-", open_count=3, values_max=values_max)
    made = {topic.name for topic in topics.new_topics}
    given_values: Counter[tuple[str, int]] = Counter()
    for _ in range(300):
        to_make = topics.to_make()
        if to_make is not None:
            is_made = rng.random() >= troubles
            topics.on_made(to_make, is_made=is_made)
            if is_made:
                assert to_make not in made
                made.add(to_make)
        key, value = topics.next_value(rng)
        assert partition_of(key)[0] in made
        given_values[key, value] += 1
    assert set(given_values.values()) == {1}
    assert troubles or max(value for _, value in given_values) < values_max
    assert len(topics.open) == 3


def test_topics_are_made_before_they_are_needed_and_by_one_at_a_time() -> None:
    topics = Topics("", open_count=1, values_max=1)
    assert topics.to_make() is None
    rng = Random(0)
    topics.next_value(rng)
    wanted = topics.to_make()
    assert wanted == f"q{1 + READY_COUNT}"
    assert topics.to_make() is None
    topics.on_made(wanted, is_made=False)
    assert topics.to_make() == wanted
