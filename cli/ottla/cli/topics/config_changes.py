"""Parses changes of settings of a topic, a broker or the whole cluster, requests the changes, and
computes the resulting values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_configs import (
    Append,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    Subtract,
)
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.settings.declare import SettingKind
from ottla.model.settings.resources import ConfigKind, ConfigSource

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

OPTIONS = {
    ConfigKind.TOPIC: "topic",
    ConfigKind.BROKER: "broker",
    ConfigKind.BROKER_LOGGER: "loggers",
    ConfigKind.CLIENT_METRICS: "client-metrics",
    ConfigKind.GROUP: "group",
}
"""Command-line option for each kind of entity that has settings."""

OWN_SOURCES = {
    ConfigKind.TOPIC: ConfigSource.TOPIC,
    ConfigKind.BROKER: ConfigSource.BROKER,
    ConfigKind.BROKER_LOGGER: ConfigSource.BROKER_LOGGER,
    ConfigKind.CLIENT_METRICS: ConfigSource.CLIENT_METRICS,
    ConfigKind.GROUP: ConfigSource.GROUP,
}


OPERATIONS: dict[str, type[Append | Subtract]] = {"+": Append, "-": Subtract}
"""Operation that a change applies to a setting with a list of values, by the sign before the equals
sign."""


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity that has settings, such as a topic, a broker or a group."""

    kind: ConfigKind
    name: str

    def __str__(self) -> str:
        match self.kind:
            case ConfigKind.BROKER:
                return f"broker {self.name}" if self.name else "the cluster"
            case ConfigKind.BROKER_LOGGER:
                return f"the loggers of broker {self.name}"
        return f"{OPTIONS[self.kind].replace('-', ' ')} {self.name!r}"

    @property
    def option(self) -> str:
        """Command-line option that names an entity of this kind."""
        return f"--{OPTIONS[self.kind]} {self.name}" if self.name else "--cluster"

    @property
    def resource(self) -> ConfigResource:
        """The entity as a resource in requests of Kafka's protocol."""
        return ConfigResource(self.kind, self.name)

    @property
    def broker(self) -> NodeId | None:
        """Id of the broker that must receive requests about this entity's settings, or None if any
        broker may receive them. Only a broker itself knows its settings file and its loggers."""
        is_one_brokers = self.kind in (ConfigKind.BROKER, ConfigKind.BROKER_LOGGER)
        return NodeId(int(self.name)) if is_one_brokers and self.name else None


class Change(NamedTuple):
    """One requested change of a setting of a topic, broker or group."""

    key: str
    change: ConfigChange

    def after(self, now: ConfigEntry | None, own: ConfigSource) -> str | None:
        """Return the value of a setting after the change, or None if it then has no value.

        `now` is the setting before the change. `own` is the source (ConfigSource) of values that
        are set on the entity itself.
        """
        match self.change:
            case None:
                left = () if now is None else now.synonyms
                return next((one.value for one in left if one.source != own), None)
            case str(value):
                return value
            case Append(value):
                parts, wanted = _parts(None if now is None else now.value), _parts(value)
                return ",".join([*parts, *(part for part in wanted if part not in parts)])
            case Subtract(value):
                parts, wanted = _parts(None if now is None else now.value), _parts(value)
                return ",".join(part for part in parts if part not in wanted)


def default_of(entity: Entity, key: str) -> str | None:
    """Return the declared default of a setting of the entity, or None if the setting has no
    default."""
    # Imported late: commands that change one setting need no declarations.
    from ottla.model.settings.dynamic import definitions_of

    definition = definitions_of(entity.kind).get(key)
    return None if definition is None else definition.default


def value_after(entity: Entity, change: Change, before: Mapping[str, ConfigEntry]) -> str | None:
    """Return the value of a setting after a change, or None if it then has no value. `before`
    contains the entity's settings before the change."""
    after = change.after(before.get(change.key), own_source(entity))
    if after is None and change.change is None:
        return default_of(entity, change.key)
    return after


def own_source(entity: Entity) -> ConfigSource:
    """Return the source (ConfigSource) of values that are set on the entity itself."""
    return OWN_SOURCES[entity.kind] if entity.name else ConfigSource.CLUSTER


def parse_changes(option: str, texts: Sequence[str], unset: Sequence[str]) -> list[Change]:
    """Parse changes of settings in the forms KEY=VALUE, KEY+=VALUE and KEY-=VALUE (the last two are
    for lists). The keys in `unset` are reset to their defaults. Returns all changes."""
    changes = []
    for text in texts:
        key, equals, value = text.partition("=")
        operation = OPERATIONS.get(key[-1:])
        name = (key if operation is None else key[:-1]).strip()
        if not (equals and name):
            raise ConfigError(
                option, f"is {text!r}; it must be KEY=VALUE, or KEY+=VALUE or KEY-=VALUE of a list"
            )
        asked = value.strip()
        changes.append(Change(name, asked if operation is None else operation(asked)))
    changes += [Change(key, None) for key in unset]
    if not changes:
        raise ConfigError(option, "is missing; name what to change, as KEY=VALUE or --unset KEY")
    return changes


async def settings_of(
    admin: Admin, entity: Entity, keys: Sequence[str] | None = None
) -> dict[str, ConfigEntry]:
    """Return the settings `keys` of an entity, or all settings if `keys` is None, sorted by key."""
    await _check_alive(admin, entity)
    try:
        found = await admin.describe_configs(
            entity.resource, keys=keys, has_synonyms=True, has_documentation=True
        )
    except RefusedError as refusal:
        raise RefusedError(refusal.code, f"{entity}: {_meaning(refusal)}") from None
    return {key: found[key] for key in sorted(found)}


async def alter(
    admin: Admin, entities: Sequence[Entity], changes: Sequence[Change], *, is_dry: bool
) -> dict[Entity, RefusedError]:
    """Make changes of settings, or only validate them if `is_dry` is True. Returns the refusal for
    each entity whose changes were refused."""
    await _check_alive(admin, entities[0])
    outcomes = await admin.try_alter_configs(
        [entity.resource for entity in entities], changes, is_rehearsal=is_dry
    )
    refusals = {}
    for resource, refusal in outcomes.items():
        if refusal is not None:
            entity = Entity(*resource)
            said = _meaning(refusal)
            if said.startswith(("Unknown", "Logger")):
                said += f"; see 'ottla config get {entity.option} --all'"
            refusals[entity] = RefusedError(refusal.code, f"{entity}: {said}")
    return refusals


async def _check_alive(admin: Admin, entity: Entity) -> None:
    """Raise RefusedError if the entity is a broker that is not alive. Only that broker can read its
    settings file."""
    node = entity.broker
    if node is None:
        return
    if node not in {broker.node_id for broker in (await admin.cluster.metadata([])).brokers}:
        raise RefusedError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"broker {node} is not alive in this cluster; see 'ottla broker list'",
        )


def as_json(entity: Entity, key: str, setting: ConfigEntry) -> dict[str, Any]:
    """Return a setting with all its attributes as the JSON object that `ottla config` prints."""
    return {
        "key": key,
        "value": setting.value,
        "source": SOURCES.get(setting.source, str(setting.source)),
        "default": default_of(entity, key) if setting.default is None else setting.default,
        "type": SettingKind(setting.type).name.lower() if setting.type else None,
        "read_only": setting.is_read_only,
        "sensitive": setting.is_sensitive,
        "set_by": [
            {"key": one.name, "value": one.value, "source": SOURCES.get(one.source, "")}
            for one in setting.synonyms
        ],
        "documentation": setting.documentation,
    }


def _parts(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _meaning(refusal: RefusedError) -> str:
    if refusal.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return "it does not exist; see 'ottla topic list'"
    return refusal.message.rstrip(".")
