"""Effective settings of one group: its dynamic settings, and the broker's settings as defaults.
Pure."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ottla.metadata.image import EMPTY, MetadataImage
from ottla.metadata.records import GROUP_RESOURCE
from ottla.model.ids import NodeId
from ottla.model.settings.declare import definitions
from ottla.model.settings.group_overrides import GroupSettings, group_settings_of
from ottla.model.settings.groups import GroupConfig
from ottla.model.settings.share_groups import ShareGroupConfig
from ottla.node.admin.connection_bounds import value_in_force

logger = logging.getLogger("ottla.broker.groups")

KEPT_MAX = 10_000
"""Maximum number of groups with dynamic settings whose parsed settings are cached. With a smaller
value, the broker parses settings more often."""


def groups_in_force(image: MetadataImage, node_id: NodeId, config: GroupConfig) -> GroupConfig:
    """Return a broker's group settings with the dynamic assignment intervals applied. `config`
    contains the settings of the broker's file.

    As in Kafka, a dynamic value outside the broker's limits is replaced by the nearest limit.
    """
    share = config.share
    consumer_ms = _value_in_force(image, node_id, "consumer_assignment_interval_ms", config)
    share_ms = _value_in_force(image, node_id, "assignment_interval_ms", share)
    if (consumer_ms, share_ms) == (
        config.consumer_assignment_interval_ms,
        share.assignment_interval_ms,
    ):
        return config
    return replace(
        config,
        consumer_assignment_interval_ms=consumer_ms,
        share=replace(share, assignment_interval_ms=share_ms),
    )


def _value_in_force(
    image: MetadataImage, node_id: NodeId, field_name: str, config: GroupConfig | ShareGroupConfig
) -> int:
    """Return the effective value of the group setting `field_name`. The settings `FIELD_min` and
    `FIELD_max` contain its bounds."""
    definition = _DYNAMIC[field_name]
    value: Any = value_in_force(image, node_id, definition, config)
    lowest, highest = getattr(config, f"{field_name}_min"), getattr(config, f"{field_name}_max")
    return int(min(max(value, lowest), highest))


_DYNAMIC = {
    definition.field_name: definition
    for part in (GroupConfig, ShareGroupConfig)
    for definition in definitions(part).values()
    if definition.is_dynamic
}
"""Definitions of the dynamic settings of groups, by the config field that stores the value."""


class SettingsOfGroups:
    """Effective settings of groups. Groups without dynamic settings share one object.

    Each heartbeat reads the settings twice. Building them each time would cost more than all other
    work of the heartbeat.
    """

    __slots__ = ("_config", "_image", "_in_file", "_known", "_node_id", "_unset")

    def __init__(self, config: GroupConfig, node_id: NodeId) -> None:
        """Create the group settings of a broker. `config` has the values of the broker's file."""
        self._in_file = self._config = config
        self._node_id = node_id
        self._image = EMPTY
        """Last metadata image from which the broker's dynamic settings were read."""
        self._unset = group_settings_of({}, config)
        self._known: dict[str, tuple[Mapping[str, str], GroupSettings]] = {}
        """Settings of each group with dynamic settings, and the texts from which they were
        parsed."""

    def of(self, image: MetadataImage, group_id: str) -> GroupSettings:
        """Return the effective settings of a group. `image` is the current metadata image."""
        if image is not self._image:
            self._apply(image)
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

    def _apply(self, image: MetadataImage) -> None:
        """Apply the broker's dynamic settings for groups in a metadata image."""
        self._image = image
        config = groups_in_force(image, self._node_id, self._in_file)
        if config != self._config:
            self._config = config
            self._unset = group_settings_of({}, config)
            self._known.clear()
