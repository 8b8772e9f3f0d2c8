"""What one group goes by: set on it, or else by this broker's own file.  Pure."""

from ottla.metadata.image import MetadataImage
from ottla.metadata.records import GROUP_RESOURCE
from ottla.model.settings.group_overrides import GroupSettings, group_settings_of
from ottla.model.settings.groups import GroupConfig


class SettingsOfGroups:
    """The settings in force for groups; those of nearly all, which set nothing, are made once.

    Each heartbeat asks for them twice, and making them costs more than the rest of it.
    """

    __slots__ = ("_config", "_unset")

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self._unset = group_settings_of({}, config)

    def of(self, image: MetadataImage, group_id: str) -> GroupSettings:
        """Return the settings in force for a group by this metadata."""
        texts = image.config(GROUP_RESOURCE, group_id)
        return group_settings_of(texts, self._config) if texts else self._unset
