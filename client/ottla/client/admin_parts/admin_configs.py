"""Settings of topics, brokers, groups and client metrics: as they are in force, and changed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ottla.client.admin_parts.admin_calls import AdminCalls, granted, refusal_of
from ottla.client.network.cluster import raise_for
from ottla.client.network.told import known, only
from ottla.model.errors import ProtocolError, RefusedError
from ottla.model.ids import NodeId
from ottla.model.settings.resources import AlterOperation, ConfigKind, ConfigSource
from ottla.wire.messages import alter_configs_request
from ottla.wire.messages.alter_configs_request import AlterConfigsRequest
from ottla.wire.messages.alter_configs_response import AlterConfigsResponse
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
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse

OF_ONE_BROKER = frozenset({ConfigKind.BROKER, ConfigKind.BROKER_LOGGER})
"""What only that broker itself can tell."""


class ConfigResource(NamedTuple):
    """One thing that has settings; the broker of the empty name is all brokers."""

    kind: ConfigKind
    """Kind of the resource."""
    name: str
    """Name of the topic or group, or id of the broker."""


class ConfigSynonym(NamedTuple):
    """Where else a value could come from, the next in force first."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One setting as it is in force."""

    value: str | None
    """None where it is a secret, or not set."""
    source: ConfigSource
    """Where the value comes from."""
    is_read_only: bool
    """Whether a change needs a restart."""
    is_sensitive: bool
    """Whether the value is a secret."""
    synonyms: tuple[ConfigSynonym, ...] = ()
    """Other sources of the value, if they were asked for."""
    documentation: str | None = None
    """Meaning of the setting, if it was asked for."""
    type: int = 0
    """Of the value, by Kafka's numbers; 0 where the broker is too old to say."""

    @property
    def default(self) -> str | None:
        """The value in force where nobody sets one, if synonyms were asked for."""
        defaults = (one.value for one in self.synonyms if one.source is ConfigSource.DEFAULT)
        return next(defaults, None)


@dataclass(frozen=True, slots=True)
class Append:
    """Add to a list."""

    value: str
    """Entry to add."""


@dataclass(frozen=True, slots=True)
class Subtract:
    """Take out of a list."""

    value: str
    """Entry to take out."""


ConfigChange: TypeAlias = str | Append | Subtract | None
"""A new value; None gives a setting its default back."""


class ConfigCalls(AdminCalls):
    """Calls about settings."""

    async def describe_configs(
        self,
        resource: ConfigResource,
        *,
        keys: Iterable[str] | None = None,
        has_synonyms: bool = False,
        has_documentation: bool = False,
    ) -> dict[str, ConfigEntry]:
        """Return every setting as it is in force, or those of `keys`."""
        outcomes = await self.try_describe_configs(
            [resource],
            keys=keys,
            has_synonyms=has_synonyms,
            has_documentation=has_documentation,
        )
        return granted(only(list(outcomes.values()), "resource"))

    async def try_describe_configs(
        self,
        resources: Sequence[ConfigResource],
        *,
        keys: Iterable[str] | None = None,
        has_synonyms: bool = False,
        has_documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | RefusedError]:
        """Ask one broker, that of the first of `resources`, for their settings."""
        wanted = None if keys is None else list(keys)
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=wanted
                )
                for kind, name in resources
            ],
            include_synonyms=has_synonyms,
        )
        if has_documentation:
            request.include_documentation = True
        answer = await self._cluster.request(
            request, DescribeConfigsResponse, node=_node_of(resources[0])
        )
        return {
            _resource(told.resource_type, told.resource_name): refusal_of(
                told.error_code, told.error_message
            )
            or {one.name: _entry(one) for one in told.configs}
            for told in answer.results
        }

    async def topic_configs(self, topic: str) -> dict[str, ConfigEntry]:
        """Return every setting of a topic as it is in force."""
        return await self.describe_configs(ConfigResource(ConfigKind.TOPIC, topic))

    async def broker_configs(self, node: NodeId) -> dict[str, ConfigEntry]:
        """Return every setting of a broker as it is in force there."""
        return await self.describe_configs(ConfigResource(ConfigKind.BROKER, str(node)))

    async def alter_configs(
        self,
        resource: ConfigResource,
        changes: Mapping[str, ConfigChange],
        *,
        is_rehearsal: bool = False,
    ) -> None:
        """Change some settings and leave the others; all of them or none."""

        async def attempt() -> None:
            outcomes = await self.try_alter_configs(
                [resource], changes.items(), is_rehearsal=is_rehearsal
            )
            granted(only(list(outcomes.values()), "resource"))

        await self._sit_out(attempt)

    async def try_alter_configs(
        self,
        resources: Sequence[ConfigResource],
        changes: Iterable[tuple[str, ConfigChange]],
        *,
        is_rehearsal: bool = False,
    ) -> dict[ConfigResource, RefusedError | None]:
        """Ask once for the same changes of each resource; return what became of each.

        One broker is asked: the one that the first of `resources` belongs to.
        """
        alterations = [_alteration(key, change) for key, change in changes]
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(resource_type=kind, resource_name=name, configs=alterations)
                for kind, name in resources
            ],
            validate_only=is_rehearsal,
        )
        answer = await self._cluster.request(
            request, IncrementalAlterConfigsResponse, node=_node_of(resources[0])
        )
        return {
            _resource(told.resource_type, told.resource_name): refusal_of(
                told.error_code, told.error_message
            )
            for told in answer.responses
        }

    async def replace_configs(
        self,
        resource: ConfigResource,
        settings: Mapping[str, str | None],
        *,
        is_rehearsal: bool = False,
    ) -> None:
        """Set these settings and give all others their defaults back (AlterConfigs)."""
        kind, name = resource
        asked = alter_configs_request.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                alter_configs_request.AlterableConfig(name=key, value=value)
                for key, value in settings.items()
            ],
        )
        request = AlterConfigsRequest(resources=[asked], validate_only=is_rehearsal)

        async def attempt() -> None:
            answer = await self._cluster.request(request, AlterConfigsResponse)
            told = only(answer.responses, "resource")
            raise_for(told.error_code, told.error_message)

        await self._sit_out(attempt)

    async def alter_topic_configs(
        self, topic: str, changes: Mapping[str, ConfigChange], *, is_rehearsal: bool = False
    ) -> None:
        """Change settings of a topic; None gives one its default back."""
        resource = ConfigResource(ConfigKind.TOPIC, topic)
        await self.alter_configs(resource, changes, is_rehearsal=is_rehearsal)

    async def alter_broker_configs(
        self,
        node: NodeId | None,
        changes: Mapping[str, ConfigChange],
        *,
        is_rehearsal: bool = False,
    ) -> None:
        """Change settings of a broker, or with None of all of them, while they run."""
        resource = ConfigResource(ConfigKind.BROKER, "" if node is None else str(node))
        await self.alter_configs(resource, changes, is_rehearsal=is_rehearsal)


def _resource(kind: int, name: str) -> ConfigResource:
    found = known(ConfigKind, kind, None)
    if found is None:
        raise ProtocolError(f"settings of a resource of type {kind} were answered")
    return ConfigResource(found, name)


def _node_of(resource: ConfigResource) -> NodeId | None:
    kind, name = resource
    return NodeId(int(name)) if kind in OF_ONE_BROKER and name else None


def _alteration(key: str, change: ConfigChange) -> AlterableConfig:
    if isinstance(change, Append):
        operation, value = AlterOperation.APPEND, change.value
    elif isinstance(change, Subtract):
        operation, value = AlterOperation.SUBTRACT, change.value
    elif change is None:
        return AlterableConfig(name=key, config_operation=AlterOperation.DELETE, value=None)
    else:
        operation, value = AlterOperation.SET, change
    return AlterableConfig(name=key, config_operation=operation, value=value)


def _entry(told: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        told.value,
        _source(told.config_source),
        told.read_only,
        told.is_sensitive,
        tuple(
            ConfigSynonym(
                one.name, one.value, known(ConfigSource, one.source, ConfigSource.UNKNOWN)
            )
            for one in told.synonyms
        ),
        told.documentation,
        told.config_type,
    )


def _source(number: int) -> ConfigSource:
    return known(ConfigSource, number, ConfigSource.UNKNOWN)
