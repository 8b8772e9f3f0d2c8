"""Converts settings of topics and brokers to table rows: value, source, and difference from the
default. Pure."""

from collections.abc import Mapping

from ottla.client.admin_parts.admin_configs import ConfigEntry
from ottla.model.settings.declare import SettingKind
from ottla.model.settings.dynamic import definitions_of
from ottla.model.settings.resources import ConfigKind, ConfigSource
from ottla.model.values import frozen

SECRET = "(hidden)"
SOURCES = {
    ConfigSource.TOPIC: "topic",
    ConfigSource.BROKER: "broker",
    ConfigSource.CLUSTER: "cluster",
    ConfigSource.STATIC: "file",
    ConfigSource.DEFAULT: "default",
    ConfigSource.BROKER_LOGGER: "logger",
    ConfigSource.CLIENT_METRICS: "client metrics",
    ConfigSource.GROUP: "group",
}
"""Sources of setting values in words, as `ottla config get` prints them."""

_KINDS = {int(kind): kind.name.lower() for kind in SettingKind if kind}


@frozen(kw_only=True)
class SettingRow:
    """Table row about one setting of a topic or a broker."""

    key: str
    value: str | None
    """Effective value of the setting. None if the setting has no value or is secret."""
    default: str | None
    """Default value of the setting. None if it is unknown or secret."""
    source: str
    """Level at which the setting's effective value was set, in words."""
    kind: str
    """Type of the setting's value, such as "long". Empty if it is unknown."""
    is_changed: bool
    """True if the setting's value was set explicitly, even to the default's value."""
    is_sensitive: bool
    is_read_only: bool
    """True if a change of the setting takes effect only after a restart."""
    set_by: tuple[tuple[str, str, str], ...]
    """Values at each level where the setting is set, in order of precedence, as (source, key,
    value)."""
    documentation: str


def setting_rows(settings: Mapping[str, ConfigEntry], kind: ConfigKind) -> list[SettingRow]:
    """Return table rows about a resource's settings, in order of their keys. Secret values are
    omitted."""
    definitions = definitions_of(kind)
    rows = []
    for key, one in sorted(settings.items()):
        default = one.default
        if default is None and key in definitions:
            default = definitions[key].default
        rows.append(
            SettingRow(
                key=key,
                value=None if one.is_sensitive else one.value,
                default=None if one.is_sensitive else default,
                source=SOURCES.get(one.source, "not known"),
                kind=_KINDS.get(one.type, ""),
                is_changed=one.source not in (ConfigSource.DEFAULT, ConfigSource.UNKNOWN),
                is_sensitive=one.is_sensitive,
                is_read_only=one.is_read_only,
                set_by=tuple(
                    (
                        SOURCES.get(level.source, "not known"),
                        level.name,
                        SECRET if one.is_sensitive else (level.value or ""),
                    )
                    for level in one.synonyms
                ),
                documentation=one.documentation or "",
            )
        )
    return rows
