"""The bytes in which sticky assignors of any client store the previous assignment."""

import struct

from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyAssignorUserDataV1
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.groups.sticky_user_data import (
    cooperative_user_data,
    read_cooperative_user_data,
    read_sticky_user_data,
    sticky_user_data,
)
from ottla.model.ids import TopicPartition

OWNED = st.lists(
    st.builds(TopicPartition, st.text(min_size=1, max_size=9), st.integers(0, 2**31 - 1)),
    unique=True,
)


@given(OWNED, st.integers(-1, 2**31 - 1))
def test_what_is_said_is_understood(owned: list[TopicPartition], generation_id: int) -> None:
    found = read_sticky_user_data(sticky_user_data(owned, generation_id))

    assert found is not None
    assert (set(found[0]), found[1]) == (set(owned), generation_id)
    assert read_cooperative_user_data(cooperative_user_data(generation_id)) == generation_id


def test_aiokafka_reads_it() -> None:
    owned = [TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("a", 3)]

    found = StickyAssignorUserDataV1.decode(sticky_user_data(owned, 7))

    assert [tuple(one) for one in found.previous_assignment] == [("a", [1, 3]), ("b", [0])]
    assert found.generation == 7


@given(OWNED, st.data())
def test_what_is_cut_off_or_made_up_says_nothing_wrong(
    owned: list[TopicPartition], data: st.DataObject
) -> None:
    whole = sticky_user_data(owned, 3)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]

    found = read_sticky_user_data(cut)

    # The first version of these bytes had no generation: shorter bytes are of that version.
    assert found is None or (set(found[0]) <= set(owned) and found[1] == -1)
    read_sticky_user_data(data.draw(st.binary(max_size=40)))
    assert read_cooperative_user_data(b"\x00") == -1


def test_bytes_that_lead_back_to_themselves_are_left_at_once() -> None:
    """A fellow member may make them up: the leader of the group would be busy for minutes."""
    topic_count, name_length, partition_count, step_back = 2**31 - 1, 0, 0, -6
    data = struct.pack(">ihih", topic_count, name_length, partition_count, step_back)

    assert read_sticky_user_data(data) is None
