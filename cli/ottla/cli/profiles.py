"""Reads profiles (named addresses and logins of clusters) from the user's config.toml.

    [profiles.prod]
    bootstrap = "broker-1:9092,broker-2:9092"
    security.protocol = "SASL_PLAINTEXT"
    sasl.mechanism = "SCRAM-SHA-512"
    sasl.username = "alice"
    sasl.password = "…"

The keys `bootstrap` and `command-config` (the path of a settings file) are Ottla's own. All other
keys are those of --command-config. The file is read only by commands that use a profile.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla.cli.secret_files import warn_of_secrets
from ottla.cli.suggestions import did_you_mean
from ottla.cli.terminal import reason_of
from ottla.model.errors import ConfigError
from ottla.node.properties import parse_properties

CONFIG_FOLDER_VARIABLE = "XDG_CONFIG_HOME"
BOOTSTRAP_KEYS = ("bootstrap", "bootstrap.servers")
COMMAND_CONFIG_KEY = "command-config"
CONFIG_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Profile:
    """Address and login settings of a profile (a named cluster in the user's config.toml)."""

    name: str
    bootstrap: str | None
    settings: Mapping[str, str]
    """Login settings of the profile, by Kafka's keys."""


def config_path() -> Path:
    """Return the path of the user's config.toml, whether or not it exists."""
    folder = os.environ.get(CONFIG_FOLDER_VARIABLE) or "~/.config"
    return Path(folder).expanduser() / "ottla" / "config.toml"


def read_profile(name: str, source: str) -> Profile:
    """Return the profile named `name` from the user's config.toml. `source` is the option or
    variable that contained the name, for error messages. Raises ConfigError if the profile is
    missing or invalid."""
    path = config_path()
    profiles = _read(path, source).get("profiles", {})
    if not isinstance(profiles, dict):
        raise ConfigError(str(path), "has profiles that are no tables; write [profiles.NAME]")
    if name not in profiles:
        cure = did_you_mean(name, profiles)
        raise ConfigError(source, f"is {name!r}, and {path} has no [profiles.{name}]{cure}")
    found = profiles[name]
    if not isinstance(found, dict):
        raise ConfigError(str(path), f"has a profile {name} that is no table")
    texts = dict(_flat(found, path))
    addresses = [texts.pop(key) for key in BOOTSTRAP_KEYS if key in texts]
    inherited = {}
    if COMMAND_CONFIG_KEY in texts:
        file = path.parent / Path(texts.pop(COMMAND_CONFIG_KEY)).expanduser()
        inherited = read_settings(file, f"{path}: {COMMAND_CONFIG_KEY} of profile {name}")
    warn_of_secrets(path, texts)
    return Profile(name, addresses[0] if addresses else None, inherited | texts)


def read_settings(path: Path, source: str) -> dict[str, str]:
    """Return the settings in a file with Kafka's keys. `source` is the option or variable that
    contained the path, for error messages. Raises ConfigError if the file is unreadable or
    invalid."""
    try:
        texts = parse_properties(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(source, f"{path} cannot be read: {reason_of(error)}") from None
    warn_of_secrets(path, texts)
    return texts


def profile_names() -> list[str]:
    """Return the names of all profiles in the user's config.toml, or an empty list if the file does
    not exist."""
    if not config_path().exists():
        return []
    profiles = _read(config_path(), "--profile").get("profiles", {})
    return list(profiles) if isinstance(profiles, dict) else []


def _read(path: Path, source: str) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            source, f"needs {path}, which cannot be read: {reason_of(error)}"
        ) from None
    if len(data) > CONFIG_BYTES_MAX:
        raise ConfigError(str(path), f"is larger than {CONFIG_BYTES_MAX} bytes")
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ConfigError(str(path), f"is not TOML: {error}") from None


def _flat(table: Mapping[str, Any], path: Path, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys and values of a nested table. The parts of a key are joined by dots, as in
    Kafka's keys. Values are texts."""
    for name, value in table.items():
        key = f"{before}{name}"
        match value:
            case dict():
                yield from _flat(value, path, f"{key}.")
            case bool():
                yield key, str(value).lower()
            case str() | int() | float():
                yield key, str(value)
            case list() if all(isinstance(one, str) for one in value):
                yield key, ",".join(value)
            case _:
                raise ConfigError(f"{path}: {key}", "must be a text, a number, true or false")
