"""Converts results of requests to JSON, without secrets. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any
from uuid import UUID

from ottla.cli.secret_files import SECRET_ENDINGS
from ottla.client.admin_parts.admin_configs import ConfigEntry

HIDDEN = "(hidden)"
SECRET_WORDS = ("password", "secret", "jaas", "token", "credential", "private")
"""Words that mark the value of a setting as possibly secret, if they occur in the setting's key.
Settings that are declared secret need no such word."""


def is_secret(key: str) -> bool:
    """Return whether the name of a setting indicates that its value may be secret."""
    lowered = key.lower()
    return lowered.endswith(SECRET_ENDINGS) or any(word in lowered for word in SECRET_WORDS)


def plain(value: Any) -> Any:
    """Convert a value to JSON types. Named tuples and dataclasses become objects, bytes become a
    text with their number, and any other value becomes its text."""
    match value:
        case ConfigEntry():
            return _config(value)
        case Enum():
            return value.name
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {_key(key): plain(one) for key, one in value.items()}
        case tuple() if hasattr(value, "_asdict"):
            return plain(value._asdict())
        case UUID() | BaseException():
            return str(value)
        case bytes():
            return f"{len(value)} bytes"
        case Collection():
            return [plain(one) for one in value]
    if is_dataclass(value):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    return str(value)


def settings_of(entries: Mapping[str, ConfigEntry]) -> dict[str, Any]:
    """Return the settings of a broker or topic whose value is not the default. The values of secret
    settings are hidden."""
    return {
        key: {**plain(entry), "value": HIDDEN if is_secret(key) else plain(entry)["value"]}
        for key, entry in sorted(entries.items())
        if entry.source.name != "DEFAULT"
    }


def _config(entry: ConfigEntry) -> dict[str, Any]:
    value = HIDDEN if entry.is_sensitive else entry.value
    return {"value": value, "source": entry.source.name}


def _key(key: Any) -> str:
    return key.name if isinstance(key, Enum) else str(key)
