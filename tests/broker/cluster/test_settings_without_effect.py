"""Settings that metadata brings and that do nothing yet are warned about, each once."""

import logging

import pytest

from ottla.broker.cluster.settings_without_effect import SettingsWithoutEffect
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.metadata.persistent_map import PersistentMap
from ottla.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE

THROTTLED = "follower.replication.throttled.replicas"


def image_with(configs: dict[tuple[int, str], dict[str, str]]) -> MetadataImage:
    return MetadataImage(
        configs=PersistentMap({of: PersistentMap(texts) for of, texts in configs.items()})
    )


async def test_a_setting_without_effect_is_warned_about_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = SettingsWithoutEffect()
    first = image_with(
        {
            (TOPIC_RESOURCE, "orders"): {THROTTLED: "*", "segment.ms": "9"},
            (TOPIC_RESOURCE, "users"): {THROTTLED: "*"},
            (TOPIC_RESOURCE, "plain"): {"cleanup.policy": "compact"},
            (TOPIC_RESOURCE, "__consumer_offsets"): {"min.compaction.lag.ms": "1"},
        }
    )
    later = image_with(
        {
            (TOPIC_RESOURCE, "plain"): {THROTTLED: "*"},
            (BROKER_RESOURCE, ""): {"leader.replication.throttled.rate": "1000"},
        }
    )
    with caplog.at_level(logging.WARNING, logger="ottla.broker"):
        await settings.publish(MetadataDelta.between(EMPTY, first), first)
        assert len(caplog.messages) == 1
        assert (
            caplog.messages[0].endswith(
                f" sets {THROTTLED}=*, which has no effect yet: replication is not throttled; "
                "so may others"
            )
            or "users" in caplog.messages[0]
        )
        caplog.clear()
        await settings.publish(MetadataDelta.between(first, later), later)
    assert caplog.messages == [
        "broker default sets leader.replication.throttled.rate=1000, which has no effect yet: "
        "replication is not throttled; so may others"
    ]
