"""Warns of settings that the metadata brings and that are accepted without an effect.

A publisher.  Each setting is warned about once while the process runs, with one resource that has
it: hundreds of topics with one setting are one line.  The broker's own file is warned about where
it is read.
"""

import logging

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla.model.internal_topics import INTERNAL_TOPICS
from ottla.model.settings.declare import settings_without_effect
from ottla.model.settings.dynamic import broker_definitions
from ottla.model.settings.topic import TOPIC_DEFINITIONS

logger = logging.getLogger("ottla.broker")


class SettingsWithoutEffect:
    """The settings that were warned about."""

    def __init__(self) -> None:
        self._warned: set[tuple[int, str]] = set()
        self._definitions = {
            TOPIC_RESOURCE: TOPIC_DEFINITIONS,
            BROKER_RESOURCE: broker_definitions(),
        }

    @property
    def name(self) -> str:
        """The name of this publisher in reports of faults."""
        return "settings without effect"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Warn of what was set and has no effect yet."""
        for kind, name in delta.changed_configs:
            known = self._definitions.get(kind)
            if known is None or (kind == TOPIC_RESOURCE and name in INTERNAL_TOPICS):
                continue
            found = settings_without_effect(known, image.config(kind, name))
            for key, reason in found.items():
                if (kind, key) not in self._warned:
                    self._warned.add((kind, key))
                    logger.warning(
                        "%s %s sets %s=%s, which has no effect yet: %s; so may others",
                        "topic" if kind == TOPIC_RESOURCE else "broker",
                        name or "default",
                        key,
                        image.config(kind, name)[key],
                        reason,
                    )
