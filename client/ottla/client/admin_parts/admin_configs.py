"""Admin calls for the settings of topics, brokers, groups and client metrics."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ottla.client.admin_parts.admin_calls import AdminCalls, granted, refusal_of
from ottla.client.network.answer_checks import known, only
from ottla.client.network.cluster import raise_for
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
"""Kinds of resources whose settings are known only to one broker, which must receive requests about
them."""


class ConfigResource(NamedTuple):
    """A resource that has settings. The kind BROKER with an empty name stands for the cluster-wide
    defaults of all brokers."""

    kind: ConfigKind
    """Kind of the resource, such as TOPIC, BROKER or GROUP."""
    name: str
    """Name of the topic or group, or the broker's id as text."""


class ConfigSynonym(NamedTuple):
    """Value of a setting at one level, such as the topic, the broker, or Kafka's default. The
    synonyms of a setting are listed in order of precedence."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A setting with its effective value and the source of that value."""

    value: str | None
    """Effective value. None if the setting is secret or has no value."""
    source: ConfigSource
    """Source of the effective value: a topic, a broker, a default, and so on."""
    is_read_only: bool
    """True if a change of the setting takes effect only after a restart."""
    is_sensitive: bool
    """True if the setting is secret. Its value is then not reported."""
    synonyms: tuple[ConfigSynonym, ...] = ()
    """Values of the setting at all levels where it is set, in order of precedence. Empty if the
    caller did not request synonyms."""
    documentation: str | None = None
    """Description of the setting, or None if the caller did not request documentation."""
    type: int = 0
    """Number by which Kafka's protocol names the type of the value. 0 if the broker is too old to
    report the type."""

    @property
    def default(self) -> str | None:
        """Value that applies if the setting is not set anywhere. None if there is no default value,
        or if the caller did not request synonyms."""
        defaults = (one.value for one in self.synonyms if one.source is ConfigSource.DEFAULT)
        return next(defaults, None)


@dataclass(frozen=True, slots=True)
class Append:
    """A change that adds an entry to a setting whose value is a list."""

    value: str
    """Entry to add to the list."""


@dataclass(frozen=True, slots=True)
class Subtract:
    """A change that removes an entry from a setting whose value is a list."""

    value: str
    """Entry to remove from the list."""


ConfigChange: TypeAlias = str | Append | Subtract | None
"""Change of one setting: a new value, an addition to or removal from a list, or None to restore the
default."""


class ConfigCalls(AdminCalls):
    """Methods of the admin client that describe and change settings."""

    async def describe_configs(
        self,
        resource: ConfigResource,
        *,
        keys: Iterable[str] | None = None,
        has_synonyms: bool = False,
        has_documentation: bool = False,
    ) -> dict[str, ConfigEntry]:
        """Return the effective settings of a resource: the settings `keys`, or all settings if
        `keys` is None."""
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
        """Return the effective settings of each resource, or a RefusedError for a resource whose
        settings cannot be read.

        Only the settings `keys` are returned, or all settings if `keys` is None. A single request
        is sent, without retries, to the broker that is responsible for the first resource.
        """
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
            _resource(row.resource_type, row.resource_name): refusal_of(
                row.error_code, row.error_message
            )
            or {one.name: _entry(one) for one in row.configs}
            for row in answer.results
        }

    async def topic_configs(self, topic: str) -> dict[str, ConfigEntry]:
        """Return all settings of a topic with their effective values."""
        return await self.describe_configs(ConfigResource(ConfigKind.TOPIC, topic))

    async def broker_configs(self, node: NodeId) -> dict[str, ConfigEntry]:
        """Return all settings of a broker with their effective values."""
        return await self.describe_configs(ConfigResource(ConfigKind.BROKER, str(node)))

    async def alter_configs(
        self,
        resource: ConfigResource,
        changes: Mapping[str, ConfigChange],
        *,
        is_rehearsal: bool = False,
    ) -> None:
        """Change some settings of a resource and leave its other settings unchanged.

        Either all changes are made or none. With `is_rehearsal`, the broker only validates the
        changes.
        """

        async def attempt() -> None:
            outcomes = await self.try_alter_configs(
                [resource], changes.items(), is_rehearsal=is_rehearsal
            )
            granted(only(list(outcomes.values()), "resource"))

        await self._retry_until_timeout(attempt)

    async def try_alter_configs(
        self,
        resources: Sequence[ConfigResource],
        changes: Iterable[tuple[str, ConfigChange]],
        *,
        is_rehearsal: bool = False,
    ) -> dict[ConfigResource, RefusedError | None]:
        """Make the same changes to each resource, by a single request without retries.

        Returns the RefusedError of each resource, or None if its changes were made. The request is
        sent to the broker that is responsible for the first resource.
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
            _resource(row.resource_type, row.resource_name): refusal_of(
                row.error_code, row.error_message
            )
            for row in answer.responses
        }

    async def replace_configs(
        self,
        resource: ConfigResource,
        settings: Mapping[str, str | None],
        *,
        is_rehearsal: bool = False,
    ) -> None:
        """Replace the settings of a resource by `settings` (AlterConfigs). Settings that are not in
        `settings` get their default values.

        With `is_rehearsal`, the settings are only validated.
        """
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
            row = only(answer.responses, "resource")
            raise_for(row.error_code, row.error_message)

        await self._retry_until_timeout(attempt)

    async def alter_topic_configs(
        self, topic: str, changes: Mapping[str, ConfigChange], *, is_rehearsal: bool = False
    ) -> None:
        """Change settings of a topic. The other settings keep their values. The value None restores
        the default of a setting.

        With `is_rehearsal`, the cluster only validates the changes.
        """
        resource = ConfigResource(ConfigKind.TOPIC, topic)
        await self.alter_configs(resource, changes, is_rehearsal=is_rehearsal)

    async def alter_broker_configs(
        self,
        node: NodeId | None,
        changes: Mapping[str, ConfigChange],
        *,
        is_rehearsal: bool = False,
    ) -> None:
        """Change dynamic settings of one broker, or of all brokers if `node` is None.

        With `is_rehearsal`, the cluster only validates the changes.
        """
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


def _entry(row: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        row.value,
        _source(row.config_source),
        row.read_only,
        row.is_sensitive,
        tuple(
            ConfigSynonym(
                one.name, one.value, known(ConfigSource, one.source, ConfigSource.UNKNOWN)
            )
            for one in row.synonyms
        ),
        row.documentation,
        row.config_type,
    )


def _source(number: int) -> ConfigSource:
    return known(ConfigSource, number, ConfigSource.UNKNOWN)
