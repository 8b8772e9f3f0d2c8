"""Effective settings of one group: its own dynamic settings, and for all others those of this
broker. Pure."""

from ottla.metadata.image import MetadataImage
from ottla.metadata.records import GROUP_RESOURCE
from ottla.model.settings.group_overrides import GroupSettings, group_settings_of
from ottla.model.settings.groups import GroupConfig


class SettingsOfGroups:
    """Effective settings of groups. Groups without dynamic settings share one object.

    Each heartbeat reads the settings twice, and building them would cost more than all other work
    of the heartbeat.
    """

    __slots__ = ("_config", "_unset")

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self._unset = group_settings_of({}, config)

    def of(self, image: MetadataImage, group_id: str) -> GroupSettings:
        """Return the effective settings of a group under a metadata image."""
        texts = image.config(GROUP_RESOURCE, group_id)
        return group_settings_of(texts, self._config) if texts else self._unset
