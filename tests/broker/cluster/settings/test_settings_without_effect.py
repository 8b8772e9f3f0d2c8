"""Settings that metadata brings and that do nothing yet are warned about, each once."""

import logging

import pytest

from ottla.broker.cluster.settings.settings_without_effect import SettingsWithoutEffect
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.metadata.persistent_map import PersistentMap
from ottla.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE

IO_THREADS = "num.io.threads"
NETWORK_THREADS = "num.network.threads"


def image_with(configs: dict[tuple[int, str], dict[str, str]]) -> MetadataImage:
    return MetadataImage(
        configs=PersistentMap({of: PersistentMap(texts) for of, texts in configs.items()})
    )


async def test_names_without_meaning_and_values_of_other_bounds_are_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    texts = {
        "log.retention.ms": "0",
        "num.io.threads": "16",
        "num.recovery.threads.per.data.dir": "4",
        "secret.of.others": "hush",
        "log.roll.ms": "9",
    }
    image = image_with({(BROKER_RESOURCE, ""): texts})
    with caplog.at_level(logging.WARNING, logger="ottla.broker"):
        await SettingsWithoutEffect().publish(MetadataDelta.between(EMPTY, image), image)
    assert sorted(caplog.messages) == [
        "broker default sets log.retention.ms=0, which is not allowed and passed over: "
        "log.retention.ms: is '0'; it must be an integer, but not 0; so may others",
        "broker default sets num.io.threads=16, which has no effect yet: one event loop serves "
        "all connections; so may others",
        "broker default sets num.recovery.threads.per.data.dir=4, which has no effect: logs are "
        "recovered when a broker starts, by the number in its file; so may others",
        "broker default sets secret.of.others=[hidden], which Ottla does not know; so may others",
    ]


async def test_a_setting_without_effect_is_warned_about_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = SettingsWithoutEffect()
    first = image_with(
        {
            (BROKER_RESOURCE, "1"): {IO_THREADS: "16", "log.segment.bytes": "1048576"},
            (BROKER_RESOURCE, "2"): {IO_THREADS: "16"},
            (TOPIC_RESOURCE, "plain"): {"cleanup.policy": "compact"},
            (TOPIC_RESOURCE, "__consumer_offsets"): {"min.compaction.lag.ms": "1"},
        }
    )
    later = image_with(
        {
            (BROKER_RESOURCE, "3"): {IO_THREADS: "16"},
            (BROKER_RESOURCE, ""): {NETWORK_THREADS: "6"},
        }
    )
    with caplog.at_level(logging.WARNING, logger="ottla.broker"):
        await settings.publish(MetadataDelta.between(EMPTY, first), first)
        assert caplog.messages == [
            f"broker 1 sets {IO_THREADS}=16, which has no effect yet: one event loop serves "
            "all connections; so may others"
        ]
        caplog.clear()
        await settings.publish(MetadataDelta.between(first, later), later)
    assert caplog.messages == [
        f"broker default sets {NETWORK_THREADS}=6, which has no effect yet: one event loop serves "
        "all connections; so may others"
    ]
