"""What one group goes by: set on it, or else by this broker's own file.  Pure."""

from ottla.metadata.image import MetadataImage
from ottla.metadata.records import GROUP_RESOURCE
from ottla.model.settings.group_overrides import GroupSettings, group_settings_of
from ottla.model.settings.groups import GroupConfig


def group_settings(image: MetadataImage, config: GroupConfig, group_id: str) -> GroupSettings:
    """Return the settings in force for a group."""
    return group_settings_of(image.config(GROUP_RESOURCE, group_id), config)
