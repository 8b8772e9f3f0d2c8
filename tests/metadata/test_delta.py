"""Deltas, as publishers read them."""

from uuid import UUID

from ottla.metadata import fold, records
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.directories import UNASSIGNED
from ottla.metadata.image import EMPTY, BrokerRegistration, MetadataImage, PartitionState
from ottla.metadata.records import Record
from ottla.model.ids import NodeId, TopicIdPartition

OLD, NEW = UUID(int=0xA000), UUID(int=0xA001)
ONE, TWO = NodeId(1), NodeId(2)
STATE = PartitionState(
    replicas=(ONE, TWO), directories=(UNASSIGNED,) * 2, isr=(ONE,), elr=(TWO,), leader=ONE
)
BROKER = BrokerRegistration(id=ONE, epoch=5, incarnation_id=UUID(int=0xB000))


def base() -> MetadataImage:
    return fold.apply_all(
        EMPTY,
        [
            records.register_broker_record(BROKER),
            records.topic_record("a", OLD),
            records.partition_record(OLD, 0, STATE),
            records.partition_record(OLD, 1, STATE),
            records.config_record(records.TOPIC_RESOURCE, "a", "k", "v"),
        ],
    )


def delta_of(*changes: Record) -> MetadataDelta:
    delta = MetadataDelta(base())
    for record in changes:
        delta.replay(record)
    return delta


def test_a_deleted_topic_is_reported_as_it_was_with_its_configs() -> None:
    delta = delta_of(records.remove_topic_record(OLD))

    assert delta.deleted_topics == (base().topics[OLD],)
    assert delta.changed_configs == ((records.TOPIC_RESOURCE, "a"),)
    assert delta.changed_topics == ()
    assert delta.changed_partitions == ()


def test_delete_and_create_of_one_name_is_two_topics() -> None:
    delta = delta_of(
        records.remove_topic_record(OLD),
        records.topic_record("a", NEW),
        records.partition_record(NEW, 0, STATE),
    )

    assert [topic.id for topic in delta.deleted_topics] == [OLD]
    assert delta.created_topics == (NEW,)
    assert delta.changed_partitions == (TopicIdPartition(NEW, 0),)


def test_a_topic_that_came_and_went_is_not_reported() -> None:
    delta = delta_of(
        records.topic_record("b", NEW),
        records.partition_record(NEW, 0, STATE),
        records.remove_topic_record(NEW),
    )

    assert delta.changed_topics == delta.created_topics == ()
    assert delta.deleted_topics == ()
    assert delta.changed_partitions == ()


def test_only_the_partition_that_changed_is_reported() -> None:
    delta = delta_of(records.partition_change_record(OLD, 1, elr=[]))

    assert delta.changed_partitions == (TopicIdPartition(OLD, 1),)
    assert delta.changed_topics == (OLD,)
    assert delta.created_topics == ()


def test_forgotten_elrs_are_reported_for_each_partition() -> None:
    delta = delta_of(records.clear_elr_record("a"))

    assert delta.changed_partitions == (TopicIdPartition(OLD, 0), TopicIdPartition(OLD, 1))


def test_brokers_and_producer_ids_are_reported() -> None:
    fenced = delta_of(records.broker_change_record(BROKER, is_fenced=False))
    handed = delta_of(records.producer_ids_record(ONE, 5, 1000))

    assert fenced.changed_brokers == (ONE,)
    assert not fenced.is_empty
    assert not handed.is_empty


def test_nothing_happened_is_empty() -> None:
    assert delta_of(records.no_op_record()).is_empty
    assert MetadataDelta.between(base(), base()).is_empty


def test_two_images_are_compared_whole() -> None:
    image = delta_of(records.remove_topic_record(OLD)).image

    delta = MetadataDelta.between(base(), image)

    assert [topic.id for topic in delta.deleted_topics] == [OLD]
    assert delta.changed_configs == ((records.TOPIC_RESOURCE, "a"),)
    assert delta.image == image
