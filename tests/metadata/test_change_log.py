"""The log of the cluster's changes on one node."""

from dataclasses import replace
from uuid import UUID

import pytest

from ottla.metadata.change_log import ChangeLog
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, BrokerRegistration, MetadataImage, PartitionState, Topic
from ottla.metadata.persistent_map import PersistentMap
from ottla.metadata.records import BROKER_RESOURCE
from ottla.model.ids import NodeId
from ottla.model.log_events import event_of


def with_broker(image: MetadataImage, *, is_fenced: bool) -> MetadataImage:
    broker = BrokerRegistration(
        id=NodeId(2), epoch=7, incarnation_id=UUID(int=1), is_fenced=is_fenced
    )
    return replace(image, brokers=image.brokers.set(NodeId(2), broker))


async def test_fencing_is_a_line_and_the_first_image_is_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    log = ChangeLog(NodeId(101), lambda: True)
    serving, fenced = with_broker(EMPTY, is_fenced=False), with_broker(EMPTY, is_fenced=True)
    for before, after in ((EMPTY, serving), (serving, fenced), (fenced, serving)):
        await log.publish(MetadataDelta.between(before, after), after)
    found = [event_of(record) for record in caplog.records]
    assert found == ["metadata.loaded", "broker.fenced", "broker.unfenced"]


@pytest.mark.parametrize(("node", "lines"), [(2, ["broker.fenced"]), (3, [])])
async def test_a_broker_logs_what_concerns_itself(
    caplog: pytest.LogCaptureFixture, node: int, lines: list[str]
) -> None:
    caplog.set_level("INFO")
    log = ChangeLog(NodeId(node), lambda: False)
    serving, fenced = with_broker(EMPTY, is_fenced=False), with_broker(EMPTY, is_fenced=True)
    for before, after in ((EMPTY, serving), (serving, fenced)):
        await log.publish(MetadataDelta.between(before, after), after)
    assert [event_of(record) for record in caplog.records] == ["metadata.loaded", *lines]


def with_partitions(*, leader: int, isr: tuple[int, ...]) -> MetadataImage:
    state = PartitionState(
        replicas=(NodeId(1), NodeId(2)),
        directories=(UUID(int=11), UUID(int=12)),
        isr=tuple(map(NodeId, isr)),
        leader=NodeId(leader),
    )
    topic = Topic(name="t", id=UUID(int=7))
    partitions: PersistentMap[int, PartitionState] = PersistentMap()
    for number in range(100):
        partitions = partitions.set(number, state)
    topic = replace(topic, partitions=partitions)
    return replace(EMPTY, topics=EMPTY.topics.set(topic.id, topic))


async def test_many_partitions_that_change_at_once_are_two_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    log = ChangeLog(NodeId(101), lambda: True)
    before, after = with_partitions(leader=1, isr=(1, 2)), with_partitions(leader=2, isr=(2,))
    for base, image in ((EMPTY, before), (before, after)):
        await log.publish(MetadataDelta.between(base, image), image)
    leaders, in_sync = [line.getMessage() for line in caplog.records[1:]]
    assert leaders.startswith("leader of 100 partitions changed: t-0 from broker 1 to broker 2; ")
    assert leaders.endswith("; and 95 more")
    assert in_sync.startswith("in-sync replicas of 100 partitions changed: t-0 from 1, 2 to 2; ")


async def test_a_throttle_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log = ChangeLog(NodeId(101), lambda: True)
    key = "leader.replication.throttled.rate"
    texts: PersistentMap[str, str] = PersistentMap()
    limited = replace(
        EMPTY, configs=EMPTY.configs.set((BROKER_RESOURCE, "2"), texts.set(key, "1000"))
    )
    for base, image in ((EMPTY, EMPTY), (EMPTY, limited), (limited, EMPTY)):
        await log.publish(MetadataDelta.between(base, image), image)
    assert [line.getMessage() for line in caplog.records[1:]] == [
        f"{key} of broker 2: 1000 bytes a second",
        f"{key} of broker 2: removed",
    ]
