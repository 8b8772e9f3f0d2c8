"""Effective settings of one group: its own dynamic settings, and the broker's settings where it has
none. Pure."""

import logging
from collections.abc import Mapping

from ottla.metadata.image import MetadataImage
from ottla.metadata.records import GROUP_RESOURCE
from ottla.model.settings.group_overrides import GroupSettings, group_settings_of
from ottla.model.settings.groups import GroupConfig

logger = logging.getLogger("ottla.broker.groups")

KEPT_MAX = 10_000
"""Maximum number of groups with dynamic settings whose parsed settings are cached. Smaller parses
them more often."""


class SettingsOfGroups:
    """Effective settings of groups. Groups without dynamic settings share one object.

    Each heartbeat reads the settings twice, and building them would cost more than all other work
    of the heartbeat.
    """

    __slots__ = ("_config", "_known", "_unset")

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self._unset = group_settings_of({}, config)
        self._known: dict[str, tuple[Mapping[str, str], GroupSettings]] = {}
        """Settings of each group with dynamic settings, and the texts from which they were
        parsed."""

    def of(self, image: MetadataImage, group_id: str) -> GroupSettings:
        """Return the effective settings of a group, given a metadata image."""
        texts = image.config(GROUP_RESOURCE, group_id)
        if not texts:
            return self._unset
        known = self._known.get(group_id)
        if known is not None and known[0] is texts:
            return known[1]
        if len(self._known) >= KEPT_MAX:
            self._known.clear()
        made = group_settings_of(
            texts,
            self._config,
            lambda sentence: logger.warning("group %r: %s", group_id, sentence),
        )
        self._known[group_id] = (texts, made)
        return made
