"""What a node logs of the cluster's changes."""

from dataclasses import replace
from uuid import UUID

import pytest

from ottla.metadata.change_log import ChangeLog
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, BrokerRegistration, MetadataImage
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
