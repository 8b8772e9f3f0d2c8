"""Warns about settings in the metadata that are accepted but have no effect.

These settings are known keys without an effect, unknown keys, and values that a release with other
bounds accepted. The publisher warns of each setting once per process, and names one resource with
the setting. Hundreds of topics with the same setting therefore cause one line. The settings file of
the broker is checked by the code that reads it.
"""

import logging

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla.model.internal_topics import INTERNAL_TOPICS
from ottla.model.settings.declare import allowed_texts, settings_without_effect
from ottla.model.settings.dynamic import described_definitions, of_one_listener
from ottla.model.settings.storage.topic import TOPIC_DEFINITIONS
from ottla.model.visible_text import visible

NEXT_START = {
    "num.recovery.threads.per.data.dir": "has no effect: logs are recovered when a broker starts, "
    "by the number in its file"
}
"""Settings whose changes a running broker accepts without an effect, as Kafka's broker does. The
values are the reasons why they have no effect."""

WARNED_MAX = 1_000
"""Maximum number of settings without effect that the broker warns about. A client may store any
name, so with a larger value it could fill the log."""

logger = logging.getLogger("ottla.broker")


class SettingsWithoutEffect:
    """Metadata publisher that warns once of each setting that is accepted but has no effect."""

    def __init__(self) -> None:
        self._warned: set[tuple[int, str]] = set()
        self._definitions = {
            TOPIC_RESOURCE: TOPIC_DEFINITIONS,
            BROKER_RESOURCE: described_definitions(),
        }

    @property
    def name(self) -> str:
        """Name of this metadata publisher (a component that applies each new metadata image), for
        fault reports."""
        return "settings without effect"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Log a warning for each changed setting in the metadata that has no effect."""
        for kind, name in delta.changed_configs:
            known = self._definitions.get(kind)
            if known is None or (kind == TOPIC_RESOURCE and name in INTERNAL_TOPICS):
                continue
            texts = image.config(kind, name)
            problems = {
                key: f"has no effect yet: {reason}"
                for key, reason in settings_without_effect(known, texts).items()
            }
            if kind == BROKER_RESOURCE:
                problems |= {key: NEXT_START[key] for key in texts if key in NEXT_START}
            _, errors = allowed_texts(known, texts)
            problems |= {
                key: f"is not allowed and passed over: {error}" for key, error in errors.items()
            }
            problems |= {
                key: "Ottla does not know"
                for key in texts
                if key not in known and not (kind == BROKER_RESOURCE and of_one_listener(key))
            }
            for key, problem in problems.items():
                # The value of an unknown name may be a secret.
                text = texts[key] if key in known else "[hidden]"
                self._warn(kind, name, key, text, problem)

    def _warn(self, kind: int, name: str, key: str, text: str, problem: str) -> None:
        if (kind, key) in self._warned or len(self._warned) >= WARNED_MAX:
            return
        self._warned.add((kind, key))
        logger.warning(
            "%s %s sets %s=%s, which %s; so may others",
            "topic" if kind == TOPIC_RESOURCE else "broker",
            name or "default",
            visible(key),
            text,
            problem,
        )
