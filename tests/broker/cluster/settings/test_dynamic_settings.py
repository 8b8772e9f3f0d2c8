"""A broker's own settings change while it runs, in Kafka's order of precedence."""

from typing import Any

import pytest

from ottla.broker.cluster.settings.dynamic_settings import (
    PRODUCER_ID_EXPIRATION_MS,
    DynamicSettings,
    setting_in_force,
)
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.metadata.persistent_map import PersistentMap
from ottla.metadata.records import BROKER_RESOURCE
from ottla.model.ids import NodeId
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.connections import MAX_CONNECTIONS, ConnectionConfig
from ottla.model.settings.dynamic import broker_definitions

CONFIG = BrokerConfig(node_id=NodeId(1), connections=ConnectionConfig(max_connections=500))


def image_with(settings: dict[str, dict[str, str]]) -> MetadataImage:
    return MetadataImage(
        configs=PersistentMap(
            {(BROKER_RESOURCE, name): PersistentMap(texts) for name, texts in settings.items()}
        )
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 500),
        ({"": {MAX_CONNECTIONS: "30"}}, 30),
        ({"": {MAX_CONNECTIONS: "30"}, "1": {MAX_CONNECTIONS: "10"}}, 10),
        ({"2": {MAX_CONNECTIONS: "10"}}, 500),
    ],
)
def test_this_broker_comes_before_the_cluster_and_both_before_the_file(
    settings: dict[str, dict[str, str]], expected: int
) -> None:
    assert setting_in_force(image_with(settings), CONFIG, MAX_CONNECTIONS) == expected


async def test_the_owner_of_a_setting_receives_each_change_and_each_reset() -> None:
    published: list[Any] = []
    publisher = DynamicSettings(CONFIG, {MAX_CONNECTIONS: published.append})
    now = EMPTY
    for settings in (
        {},
        {"": {MAX_CONNECTIONS: "30"}},
        {"": {MAX_CONNECTIONS: "30"}, "2": {MAX_CONNECTIONS: "4"}},
        {"": {MAX_CONNECTIONS: "30", PRODUCER_ID_EXPIRATION_MS: "9"}},
        {"1": {MAX_CONNECTIONS: "10"}},
        {},
    ):
        image = image_with(settings)
        await publisher.publish(MetadataDelta.between(now, image), image)
        now = image
    assert published == [30, 10, 500]


def test_the_dynamic_settings_are_kafkas() -> None:
    """Of retention only the milliseconds change while a broker runs (DynamicLogConfig)."""
    dynamic = {key for key, one in broker_definitions().items() if one.is_dynamic}
    assert {"log.retention.ms", "log.segment.bytes", "message.max.bytes"} <= dynamic
    assert {"min.insync.replicas", "unclean.leader.election.enable"} <= dynamic
    assert {MAX_CONNECTIONS, PRODUCER_ID_EXPIRATION_MS} <= dynamic
    assert not dynamic & {
        "log.retention.hours",
        "log.retention.minutes",
        "log.roll.hours",
        "node.id",
        "listeners",
        "num.partitions",
        "default.replication.factor",
    }
