"""Parses the options of Spark data sources, which are texts with case-insensitive names. Pure.

Options are declared once, in a dataclass, like settings. This module parses them. It refuses
options that would have no effect: unknown names, `kafka.*` keys that the connector sets itself, and
keys for features that Ottla's client does not have.
"""

import json
import re
from collections.abc import Hashable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar

from ottla.model.errors import ConfigError
from ottla.model.settings.declare import definitions, load, noun_of
from ottla.model.settings.endpoints import parse_bootstrap

C = TypeVar("C", bound=Hashable)

KAFKA = "kafka."
BOOTSTRAP = "kafka.bootstrap.servers"
IGNORED = frozenset({"kafka.group.id"})
"""Names of the options of a Spark data source that have no effect: a group id, because a reader in
Spark does not join a group."""
DURATION = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d|)")
MS_PER_UNIT = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}
MS_PER_DAY = 86_400_000


class KafkaOptions(NamedTuple):
    """The validated `kafka.*` options of a Spark data source."""

    bootstrap: str
    client: tuple[tuple[str, str], ...]
    """Settings of Ottla's client as (key, value), without the prefix `kafka.`, sorted by key. Every
    key is a setting of the class `client`."""


def parse_options(
    declared: type[C],
    client: type,
    texts: Mapping[str, str],
    *,
    set_by_spark: Mapping[str, str],
    also_known: Iterable[str] = (),
) -> tuple[C, KafkaOptions]:
    """Parse the options of a Spark data source into the class `declared`. Returns an instance of
    the class, and the validated `kafka.*` options.

    `client` is the settings class of the `kafka.*` keys. `set_by_spark` names the keys that users
    must not set, and the alternative for each. Options in `also_known` belong to other code and are
    ignored. Raises ConfigError for the first invalid option, with the name as the user has spelt
    it.
    """
    kafka = {name.lower(): text for name, text in texts.items() if name.lower().startswith(KAFKA)}
    names = {name.lower(): name for name in definitions(declared)}
    others = {name.lower() for name in also_known}
    own: dict[str, str] = {}
    for name, text in texts.items():
        if name.lower() in kafka or name.lower() in others:
            continue
        if name.lower() not in names:
            raise ConfigError(name, unknown(name, [*names.values(), BOOTSTRAP]))
        own[names[name.lower()]] = text
    options, _none = load(declared, own)
    return options, KafkaOptions(_bootstrap(kafka), _client(client, kafka, set_by_spark))


def unknown(name: str, known: Iterable[str]) -> str:
    """Return the error text for an unknown option of a data source, with a suggestion if a known
    option has a similar name."""
    by_lower = {one.lower(): one for one in known}
    nearest = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return "there is no such option" + (f"; is it {by_lower[nearest[0]]}?" if nearest else "")


def _bootstrap(kafka: Mapping[str, str]) -> str:
    text = kafka.get(BOOTSTRAP, "").strip()
    if not text:
        raise ConfigError(BOOTSTRAP, "is not set; it must name brokers as host:port,…")
    try:
        parse_bootstrap(text)
    except ValueError:
        raise ConfigError(
            BOOTSTRAP, f"is {text!r}; it must be {noun_of(parse_bootstrap)}"
        ) from None
    return text


def _client(
    client: type, kafka: Mapping[str, str], set_by_spark: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    known = definitions(client)
    for name, text in sorted(kafka.items()):
        key = name.removeprefix(KAFKA)
        if key in set_by_spark:
            raise ConfigError(name, f"may not be set: {set_by_spark[key]}")
        if name in IGNORED or name == BOOTSTRAP:
            continue
        if key == "security.protocol":
            text = text.upper()
            if text.strip() == "PLAINTEXT":
                continue
        if key not in known:
            raise ConfigError(name, unknown(name, (KAFKA + one for one in known)))
        try:
            known[key].value_of(text)
        except ConfigError as error:
            raise ConfigError(name, error.problem) from None
        found[key] = text.strip()
    try:
        security: Any = load(client, found)[0]
        security.login()
        security.tls()
    except ConfigError as error:
        raise ConfigError(KAFKA + error.setting, error.problem) from None
    return tuple(found.items())


def parse_duration_ms(text: str) -> int:
    """a time such as 500ms, 30s, 15m or 2h.

    Returns the time in ms. Raises ValueError if the text is malformed. Error messages quote the
    first line as the description of valid texts."""
    found = DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(text)
    count, unit = int(found[1]), found[2]
    if unit == "us":
        return count // 1_000
    return count * MS_PER_UNIT[unit] if unit != "d" else count * MS_PER_DAY


def parse_json_object(text: str) -> dict[str, Any]:
    """a JSON object.

    Returns the parsed object. Raises ValueError for any other text. Error messages quote the first
    line as the description of valid texts."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(text)
    return found
