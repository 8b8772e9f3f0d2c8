"""Effects of single records on an image, and records that a log must not contain."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from ottla.metadata import fold, records, topics_fold
from ottla.metadata.directories import UNASSIGNED
from ottla.metadata.image import (
    EMPTY,
    BrokerRegistration,
    MetadataImage,
    PartitionState,
    RecoveryState,
)
from ottla.metadata.persistent_map import MapChanges, PersistentMap
from ottla.metadata.records import Record
from ottla.model.errors import CorruptDataError, NewerReleaseError
from ottla.model.ids import NO_NODE, NodeId, TopicIdPartition
from ottla.proto import metadata_pb2

TOPIC = UUID(int=0xA000)
ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
BROKER = BrokerRegistration(id=ONE, epoch=5, incarnation_id=UUID(int=0xB000))
STATE = PartitionState(
    replicas=(ONE, TWO, THREE),
    directories=(UNASSIGNED,) * 3,
    isr=(ONE, TWO),
    elr=(THREE,),
    leader=ONE,
)


def one_topic(state: PartitionState = STATE) -> MetadataImage:
    return fold.apply_all(
        EMPTY,
        [records.topic_record("orders", TOPIC), records.partition_record(TOPIC, 0, state)],
    )


def after(image: MetadataImage, record: Record) -> PartitionState:
    state = fold.apply(image, record).partition(TopicIdPartition(TOPIC, 0))
    assert state is not None
    return state


def test_a_change_of_the_isr_raises_the_partition_epoch_only() -> None:
    state = after(one_topic(), records.partition_change_record(TOPIC, 0, isr=[ONE]))

    assert state.isr == (ONE,)
    assert state.elr == (THREE,)
    assert (state.partition_epoch, state.leader_epoch) == (1, 0)


def test_a_change_of_the_leader_raises_both_epochs() -> None:
    state = after(one_topic(), records.partition_change_record(TOPIC, 0, leader=TWO))

    assert (state.leader, state.partition_epoch, state.leader_epoch) == (TWO, 1, 1)


def test_naming_the_same_leader_still_raises_the_leader_epoch() -> None:
    state = after(one_topic(), records.partition_change_record(TOPIC, 0, leader=ONE))

    assert (state.leader, state.leader_epoch) == (ONE, 1)


def test_an_emptied_list_is_not_an_absent_one() -> None:
    change = records.partition_change_record(
        TOPIC, 0, isr=[], elr=[ONE, TWO], leader=NO_NODE, last_known_elr=[]
    )

    state = after(one_topic(), change)

    assert (state.isr, state.elr, state.last_known_elr) == ((), (ONE, TWO), ())


def test_a_recovery_state_goes_there_and_back() -> None:
    image = one_topic()
    for wanted in (RecoveryState.RECOVERING, RecoveryState.RECOVERED):
        image = fold.apply(image, records.partition_change_record(TOPIC, 0, recovery_state=wanted))
        state = image.partition(TopicIdPartition(TOPIC, 0))
        assert state is not None
        assert state.recovery_state is wanted


def test_a_removed_topic_takes_its_configs_and_index_along() -> None:
    image = fold.apply(
        one_topic(), records.config_record(records.TOPIC_RESOURCE, "orders", "k", "v")
    )

    gone = fold.apply(image, records.remove_topic_record(TOPIC))

    assert gone == EMPTY


def test_clearing_elr_touches_only_partitions_that_have_one() -> None:
    image = fold.apply(
        one_topic(),
        records.partition_record(
            TOPIC, 1, PartitionState(replicas=(ONE,), directories=(UNASSIGNED,), isr=(ONE,))
        ),
    )

    cleared = fold.apply(image, records.clear_elr_record(""))

    partitions = cleared.topics[TOPIC].partitions
    assert (partitions[0].elr, partitions[0].partition_epoch) == ((), 1)
    assert partitions[1].partition_epoch == 0


def test_clearing_elr_spares_a_partition_that_only_its_eligible_replicas_can_save() -> None:
    empty_isr = replace(STATE, isr=(), elr=(TWO, THREE), last_known_elr=(TWO,), leader=NO_NODE)

    assert after(one_topic(empty_isr), records.clear_elr_record("orders")) == empty_isr


def test_a_changed_broker_keeps_what_the_record_leaves_out() -> None:
    image = fold.apply(EMPTY, records.register_broker_record(BROKER))

    unfenced = fold.apply(image, records.broker_change_record(BROKER, is_fenced=False))
    leaving = fold.apply(
        unfenced, records.broker_change_record(BROKER, in_controlled_shutdown=True)
    )

    assert unfenced.is_active(ONE)
    assert not leaving.brokers[ONE].is_fenced
    assert not leaving.is_active(ONE)


def test_level_zero_removes_a_feature() -> None:
    image = fold.apply(EMPTY, records.feature_level_record("metadata.version", 30))

    assert fold.apply(image, records.feature_level_record("metadata.version", 0)) == EMPTY


@pytest.mark.parametrize(
    "record",
    [
        records.topic_record("orders", UUID(int=0xA001)),
        records.remove_topic_record(UUID(int=0xA001)),
        records.partition_change_record(TOPIC, 9, isr=[ONE]),
        records.partition_change_record(TOPIC, 0, isr=[NodeId(9)]),
        records.partition_change_record(TOPIC, 0, isr=[TWO]),
        records.partition_change_record(TOPIC, 0, isr=[ONE, THREE]),
        records.partition_change_record(TOPIC, 0, replicas=[ONE, TWO]),
        records.partition_change_record(TOPIC, 0, leader=THREE),
        records.unregister_broker_record(BROKER),
        records.broker_change_record(BROKER, is_fenced=True),
        records.unregister_controller_record(ONE),
        records.clear_elr_record("absent"),
        Record(remove_topic=metadata_pb2.RemoveTopic(topic_id=b"short")),
        Record(),
    ],
    ids=str,
)
def test_a_record_that_does_not_fit_the_image_is_corrupt(record: Record) -> None:
    with pytest.raises(CorruptDataError):
        fold.apply(one_topic(), record)


def test_producer_ids_are_never_handed_out_twice() -> None:
    image = fold.apply(EMPTY, records.producer_ids_record(ONE, 5, 2000))

    with pytest.raises(CorruptDataError):
        fold.apply(image, records.producer_ids_record(ONE, 5, 1000))


def test_a_record_of_an_unknown_kind_was_written_by_a_newer_release() -> None:
    with pytest.raises(NewerReleaseError, match="a newer release wrote it; start this node with"):
        records.decode_record(b"\xfa\x7f\x00")


@pytest.mark.parametrize("value", [b"", b"\xff\xff"])
def test_bytes_that_are_no_record_are_corrupt(value: bytes) -> None:
    with pytest.raises(CorruptDataError):
        records.decode_record(value)


def test_a_thousand_topics_are_one_copy_of_each_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one for each record: an image of many topics would be copied again and again."""
    history = []
    for number in range(1_000):
        topic_id = UUID(int=number)
        history.append(records.topic_record(f"t-{number}", topic_id))
        history.append(records.partition_record(topic_id, 0, STATE))
    history += [records.partition_change_record(UUID(int=n), 0, leader=TWO) for n in range(1_000)]
    copied = count_calls(monkeypatch, PersistentMap, "set")
    finished = count_calls(monkeypatch, MapChanges, "finish")
    image = fold.apply_all(EMPTY, history)
    assert copied() == 0
    # Each topic's own partitions, then what each broker holds, and the four maps of the image.
    assert finished() == 1_000 + 3 + 4
    assert len(image.topics) == 1_000
    assert {len(held) for held in image.partitions_by_broker.values()} == {1_000}


def count_calls(patch: pytest.MonkeyPatch, owner: type, name: str) -> Callable[[], int]:
    """Return a function that counts the calls of a method from now on."""
    count = 0
    original = getattr(owner, name)

    def counting(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return original(*arguments)

    patch.setattr(owner, name, counting)
    return lambda: count


def test_equal_states_of_partitions_are_encoded_once_and_read_once() -> None:
    other = UUID(int=0xA001)
    led_by_two = replace(STATE, leader=TWO)
    same = [STATE, STATE, led_by_two, STATE, led_by_two, replace(STATE)]

    written = records.partition_records(TOPIC, same, 3)
    image = fold.apply_all(
        EMPTY,
        [
            records.topic_record("orders", TOPIC),
            records.topic_record("others", other),
            *written,
            *records.partition_records(other, [STATE]),
        ],
    )

    assert written == [
        records.partition_record(TOPIC, index, state) for index, state in enumerate(same, 3)
    ]
    found = dict(image.topics[TOPIC].partitions.items())
    assert found == dict(enumerate(same, 3))
    states = [*found.values(), image.topics[other].partitions[0]]
    assert len({id(state) for state in states}) == 2


def test_the_states_that_a_fold_keeps_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics_fold, "STATES_CACHED_MAX", 2)
    states = [replace(STATE, partition_epoch=epoch % 3) for epoch in range(7)]

    image = fold.apply_all(
        EMPTY,
        [
            records.topic_record("orders", TOPIC),
            *records.partition_records(TOPIC, states),
        ],
    )

    assert dict(image.topics[TOPIC].partitions.items()) == dict(enumerate(states))
