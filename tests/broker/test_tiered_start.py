"""A broker without tiered storage does not start while a topic is tiered."""

import pytest

from ottla.broker.registration_driver import check_tiered_topics
from ottla.metadata.image import MetadataImage
from ottla.metadata.persistent_map import PersistentMap
from ottla.metadata.records import TOPIC_RESOURCE
from ottla.model.errors import ConfigError
from ottla.model.settings.storage.tier import TierConfig


def image(text: str) -> MetadataImage:
    texts = PersistentMap({"remote.storage.enable": text})
    return MetadataImage(configs=PersistentMap({(TOPIC_RESOURCE, "orders"): texts}))


def test_a_tiered_topic_needs_tiered_storage() -> None:
    check_tiered_topics(image("false"), TierConfig())
    check_tiered_topics(image("true"), TierConfig(is_enabled=True, store_uri="memory:"))
    with pytest.raises(
        ConfigError, match=r"topic orders is tiered\. You have to delete all topics"
    ):
        check_tiered_topics(image("true"), TierConfig())
