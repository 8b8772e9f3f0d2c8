"""Settings of a topic, a broker or the whole cluster: asked for, changed, and what that changes."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.client.cluster import Cluster, raise_for
from ottla.model.errors import ConfigError, ErrorCode, RefusedError, row_of
from ottla.model.ids import NodeId
from ottla.model.settings.declare import Kind
from ottla.model.settings.dynamic import ResourceType
from ottla.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from ottla.wire.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import (
    IncrementalAlterConfigsResponse,
)

SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations of IncrementalAlterConfigs."""

SOURCES = {
    1: "topic",
    2: "broker",
    3: "cluster",
    4: "file",
    5: "default",
    6: "logger",
    7: "client metrics",
    8: "group",
}
DEFAULT = 5


OPTIONS = {
    ResourceType.TOPIC: "topic",
    ResourceType.BROKER: "broker",
    ResourceType.BROKER_LOGGER: "loggers",
    ResourceType.CLIENT_METRICS: "client-metrics",
    ResourceType.GROUP: "group",
}
"""How each type is called on the command line."""

OWN_SOURCES = {
    ResourceType.TOPIC: 1,
    ResourceType.BROKER: 2,
    ResourceType.BROKER_LOGGER: 6,
    ResourceType.CLIENT_METRICS: 7,
    ResourceType.GROUP: 8,
}
CLUSTER_SOURCE = 3


@dataclass(frozen=True, slots=True)
class Entity:
    """What has the settings."""

    kind: ResourceType
    name: str

    def __str__(self) -> str:
        match self.kind:
            case ResourceType.BROKER:
                return f"broker {self.name}" if self.name else "the cluster"
            case ResourceType.BROKER_LOGGER:
                return f"the loggers of broker {self.name}"
        return f"{OPTIONS[self.kind].replace('-', ' ')} {self.name!r}"

    @property
    def option(self) -> str:
        """How it is named on the command line."""
        return f"--{OPTIONS[self.kind]} {self.name}" if self.name else "--cluster"

    @property
    def broker(self) -> NodeId | None:
        """Who must be asked: a broker alone knows its own file and its loggers."""
        is_one_brokers = self.kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
        return NodeId(int(self.name)) if is_one_brokers and self.name else None


@dataclass(frozen=True, slots=True)
class Given:
    """One place that sets a value."""

    key: str
    value: str | None
    source: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting as the cluster has it, and every place that sets it, strongest first."""

    key: str
    value: str | None
    source: int = DEFAULT
    kind: int = Kind.STRING
    is_read_only: bool = False
    is_sensitive: bool = False
    doc: str | None = None
    given: tuple[Given, ...] = field(default=())

    @property
    def default(self) -> str | None:
        """Return the value that holds where nobody sets one."""
        return next((one.value for one in self.given if one.source == DEFAULT), None)


@dataclass(frozen=True, slots=True)
class Change:
    """One change that was asked for."""

    key: str
    operation: int
    value: str | None = None

    def after(self, now: Setting | None, own: int) -> str | None:
        """Return the value that will hold; `own` is the source of what the entity itself sets."""
        if self.operation == SET:
            return self.value
        if self.operation == DELETE:
            left = () if now is None else now.given
            return next((one.value for one in left if one.source != own), None)
        parts = _parts(None if now is None else now.value)
        wanted = _parts(self.value)
        if self.operation == APPEND:
            return ",".join([*parts, *(part for part in wanted if part not in parts)])
        return ",".join(part for part in parts if part not in wanted)


def own_source(entity: Entity) -> int:
    """Return the source of what an entity itself sets, as DescribeConfigs numbers it."""
    return OWN_SOURCES[entity.kind] if entity.name else CLUSTER_SOURCE


def add_change_arguments(parser: argparse.ArgumentParser, metavar: str = "KEY=VALUE") -> None:
    """Add --unset and --dry-run."""
    parser.add_argument(
        "--unset",
        action="append",
        default=[],
        metavar="KEY",
        help="take a setting back, so that what stands above it holds; may be repeated",
    )
    add_dry_run_argument(parser)


def add_dry_run_argument(parser: argparse.ArgumentParser) -> None:
    """Add --dry-run."""
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would change and check it; change nothing"
    )


def parse_changes(option: str, texts: Sequence[str], unset: Sequence[str]) -> list[Change]:
    """Read KEY=VALUE, KEY+=VALUE and KEY-=VALUE (lists), and the keys to take back."""
    changes = []
    for text in texts:
        key, equals, value = text.partition("=")
        operation = {"+": APPEND, "-": SUBTRACT}.get(key[-1:], SET)
        name = (key if operation == SET else key[:-1]).strip()
        if not (equals and name):
            raise ConfigError(
                option, f"is {text!r}; it must be KEY=VALUE, or KEY+=VALUE or KEY-=VALUE of a list"
            )
        changes.append(Change(name, operation, value.strip()))
    changes += [Change(key, DELETE) for key in unset]
    if not changes:
        raise ConfigError(option, "is missing; name what to change, as KEY=VALUE or --unset KEY")
    return changes


async def settings_of(
    cluster: Cluster, entity: Entity, keys: Sequence[str] | None = None
) -> dict[str, Setting]:
    """Return the settings of an entity (those of `keys`, or all), by key and sorted."""
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=entity.kind,
                resource_name=entity.name,
                configuration_keys=None if keys is None else list(keys),
            )
        ],
        include_synonyms=True,
        include_documentation=True,
    )
    node = await _node_to_ask(cluster, entity)
    (result,) = (await cluster.request(request, DescribeConfigsResponse, node=node)).results
    raise_for(result.error_code, f"{entity}: {_meaning(result.error_code, result.error_message)}")
    found = [_setting(row) for row in result.configs]
    return {one.key: one for one in sorted(found, key=lambda one: one.key)}


async def alter(
    cluster: Cluster, entities: Sequence[Entity], changes: Sequence[Change], *, is_dry: bool
) -> dict[Entity, tuple[int, str]]:
    """Have changes made, or only checked; return what was refused, with a sentence."""
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=entity.kind,
                resource_name=entity.name,
                configs=[
                    AlterableConfig(
                        name=change.key, config_operation=change.operation, value=change.value
                    )
                    for change in changes
                ],
            )
            for entity in entities
        ],
        validate_only=is_dry,
    )
    node = await _node_to_ask(cluster, entities[0])
    answer = await cluster.request(request, IncrementalAlterConfigsResponse, node=node)
    refusals = {}
    for result in answer.responses:
        entity = Entity(ResourceType(result.resource_type), result.resource_name)
        if result.error_code != ErrorCode.NONE:
            said = _meaning(result.error_code, result.error_message)
            if said.startswith(("Unknown", "Logger")):
                said += f"; see 'ottla config get {entity.option} --all'"
            refusals[entity] = (result.error_code, f"{entity}: {said}")
    return refusals


async def _node_to_ask(cluster: Cluster, entity: Entity) -> NodeId | None:
    """Return who must be asked: a broker knows its own file only."""
    node = entity.broker
    if node is None:
        return None
    if node not in {broker.node_id for broker in (await cluster.metadata([])).brokers}:
        raise RefusedError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"broker {node} is not alive in this cluster; see 'ottla broker list'",
        )
    return node


def _setting(row: DescribeConfigsResourceResult) -> Setting:
    return Setting(
        key=row.name,
        value=row.value,
        source=row.config_source,
        kind=row.config_type,
        is_read_only=row.read_only,
        is_sensitive=row.is_sensitive,
        doc=row.documentation,
        given=tuple(Given(one.name, one.value, one.source) for one in row.synonyms),
    )


def as_json(setting: Setting) -> dict[str, Any]:
    """Return a setting with all that is known of it."""
    return {
        "key": setting.key,
        "value": setting.value,
        "source": SOURCES.get(setting.source, str(setting.source)),
        "default": setting.default,
        "type": Kind(setting.kind).name.lower() if setting.kind else None,
        "read_only": setting.is_read_only,
        "sensitive": setting.is_sensitive,
        "set_by": [
            {"key": one.key, "value": one.value, "source": SOURCES.get(one.source, "")}
            for one in setting.given
        ],
        "documentation": setting.doc,
    }


def _parts(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _meaning(code: int, message: str | None) -> str:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return "it does not exist; see 'ottla topic list'"
    return (message or row_of(code).meaning).rstrip(".")
