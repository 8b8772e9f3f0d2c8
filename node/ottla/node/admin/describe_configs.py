"""DescribeConfigs: describes the settings of resources, with the source of each value.

Pure. `DescribeConfigsApi` handles the request; the node returns the settings of each resource.
`DescribedNode` returns the settings that every node has: its own settings, the cluster-wide
settings of all brokers, and the levels of its loggers. Precedence is Kafka's: dynamic setting of
this node, dynamic cluster-wide setting, the node's file, default. The synonyms of a setting list
all sources that set it, strongest first.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId, parse_node_id
from ottla.model.limits import MIB
from ottla.model.settings.declare import Definition, SettingKind
from ottla.model.settings.dynamic import of_one_listener
from ottla.model.settings.resources import ConfigKind, ConfigSource
from ottla.node.admin.log_levels import LogLevels
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.node.network.steps import StepPace, Steps, add_in_steps, begun
from ottla.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from ottla.wire.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

CLUSTER_DEFAULT = ""
"""Name of the broker resource that applies to every broker."""


class ConfigLayer(NamedTuple):
    """One source of a setting's value: the key in that source, the value as text, and the kind of
    source."""

    key: str
    text: str | None
    source: ConfigSource


ANSWER_BYTES_MAX = 32 * MIB
"""Maximum bytes of the texts in one DescribeConfigs response, enough for some hundred thousand
settings. Further resources are refused. A client that describes more topics must send several
requests."""

RESOURCE_COST = 30
"""Cost of describing the settings of a resource, measured in entries of a response: about the
number of a topic's settings."""

SETTING_BYTES = 64
"""Size in bytes of one setting in a DescribeConfigs response, not counting its texts."""

TOO_MANY = RefusedError(
    ErrorCode.INVALID_REQUEST, "The answer would be too large; ask for fewer resources at once"
)


ConfigsOf = Callable[[DescribeConfigsResource], list[DescribeConfigsResourceResult]]
"""Function that returns all settings of a resource. Raises RefusedError if the resource has no
settings."""


class DescribeConfigsApi:
    """Handler of DescribeConfigs, versions 1 to 4."""

    def __init__(self, configs_of: ConfigsOf) -> None:
        self._configs = configs_of

    def handle(self, context: RequestContext, request: DescribeConfigsRequest) -> HandlerResult:
        """Describe the settings of each resource in the request once, even if the request contains
        it several times."""
        return begun(self._answer(request))

    def _answer(self, request: DescribeConfigsRequest) -> Steps[DescribeConfigsResponse]:
        pace = StepPace()
        results: list[DescribeConfigsResult] = []
        left_bytes = ANSWER_BYTES_MAX
        for resource in (yield from _asked_once(request.resources, pace)):
            if left_bytes <= 0:
                results.append(_refused(resource, TOO_MANY))
            else:
                result = self._result(resource, request)
                results.append(result)
                left_bytes -= sum(map(_size_of, result.configs))
            if pace.is_due(RESOURCE_COST):
                yield
        return DescribeConfigsResponse(results=results)

    def _result(
        self, resource: DescribeConfigsResource, request: DescribeConfigsRequest
    ) -> DescribeConfigsResult:
        result = DescribeConfigsResult(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            configs = self._configs(resource)
        except RefusedError as refusal:
            return _refused(resource, refusal)
        asked = None
        if resource.configuration_keys:
            asked = frozenset(resource.configuration_keys)
        for found in configs:
            # As in Kafka, an empty list of keys means all of them, like null.
            if asked and found.name not in asked:
                continue
            if not request.include_synonyms:
                found.synonyms = []
            if not request.include_documentation:
                found.documentation = None
            result.configs.append(found)
        return result


class DescribedNode:
    """Settings that every node describes in a DescribeConfigs response: its own settings, the
    cluster-wide settings, and the levels of its loggers."""

    def __init__(
        self,
        node_id: NodeId,
        texts: Mapping[str, str],
        definitions: Mapping[str, Definition],
        loggers: LogLevels,
    ) -> None:
        """Create the description of one node. `texts` contains the settings as written in the
        node's file, by key."""
        self._node_id = node_id
        self._file_texts = texts
        self._loggers = loggers
        self.definitions = {key: one for key, one in definitions.items() if not one.is_internal}

    def broker_configs(
        self, image: MetadataImage, name: str
    ) -> list[DescribeConfigsResourceResult]:
        """Return the settings of a broker resource. Raises RefusedError if the resource names
        another node."""
        if name == CLUSTER_DEFAULT:
            texts = self.texts(image, ConfigSource.CLUSTER)
            return [
                result_of(
                    self.definitions.get(key) or _unknown(key),
                    [ConfigLayer(key, text, ConfigSource.CLUSTER)],
                    is_read_only=key not in self.definitions,
                )
                for key, text in texts.items()
            ]
        self._check_broker(name, expected=f"{self._node_id} or empty string,")
        own = [self._broker_config(image, definition) for definition in self.definitions.values()]
        sources = (ConfigSource.BROKER, ConfigSource.CLUSTER, ConfigSource.STATIC)
        keys = {key for source in sources for key in self.texts(image, source)}
        of_listeners = [
            self._broker_config(image, definition, definition.broker_keys)
            for key in sorted(keys)
            if (definition := of_one_listener(key)) is not None
        ]
        stored = {key for source in sources[:2] for key in self.texts(image, source)}
        unknown = [
            self._broker_config(image, _unknown(key))
            for key in sorted(stored)
            if key not in self.definitions and of_one_listener(key) is None
        ]
        return own + of_listeners + unknown

    def _check_broker(self, name: str, *, expected: str) -> None:
        node_id = parse_node_id(name)
        if node_id is None:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
            )
        if node_id != self._node_id:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {expected} but received {name}",
            )

    def logger_configs(self, name: str) -> list[DescribeConfigsResourceResult]:
        """Return the levels of this node's loggers. Raises RefusedError if the resource names
        another node."""
        if not name:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        self._check_broker(name, expected=str(self._node_id))
        return [
            DescribeConfigsResourceResult(
                name=logger, value=level, config_source=ConfigSource.BROKER_LOGGER
            )
            for logger, level in self._loggers.levels().items()
        ]

    def _broker_config(
        self, image: MetadataImage, definition: Definition, weaker_keys: Sequence[str] = ()
    ) -> DescribeConfigsResourceResult:
        given = [
            ConfigLayer(key, texts[key], source)
            for source in (
                ConfigSource.BROKER,
                ConfigSource.CLUSTER,
                ConfigSource.STATIC,
            )
            for key in (definition.key, *weaker_keys)
            if key in (texts := self.texts(image, source))
        ]
        if definition.default is not None:
            given.append(ConfigLayer(definition.key, definition.default, ConfigSource.DEFAULT))
        return result_of(definition, given, is_read_only=not definition.is_dynamic)

    def texts(self, image: MetadataImage, source: ConfigSource) -> Mapping[str, str]:
        """Return the values of broker settings that are set in one source (this broker, the cluster
        or the file), by the name of the setting."""
        match source:
            case ConfigSource.BROKER:
                return image.config(ConfigKind.BROKER, str(self._node_id))
            case ConfigSource.CLUSTER:
                return image.config(ConfigKind.BROKER, CLUSTER_DEFAULT)
        return self._file_texts


def _asked_once(
    resources: Iterable[DescribeConfigsResource], pace: StepPace
) -> Steps[list[DescribeConfigsResource]]:
    """Return each resource of a DescribeConfigs request once. The keys of a resource are those of
    all its entries in the request; an entry without keys selects all keys.

    `pace` limits the duration of each step of the work.
    """
    asked: dict[tuple[int, str], DescribeConfigsResource] = {}
    keys: dict[tuple[int, str], dict[str, None] | None] = {}
    for resource in resources:
        at = resource.resource_type, resource.resource_name
        wanted = resource.configuration_keys
        if at not in asked:
            asked[at] = resource
            keys[at] = {} if wanted else None
        known = keys[at]
        if known is None or not wanted:
            keys[at] = None
            if pace.is_due():
                yield
        else:
            yield from add_in_steps(known, wanted, pace)
    for at, resource in asked.items():
        known = keys[at]
        resource.configuration_keys = None if known is None else list(known)
    return list(asked.values())


def _refused(resource: DescribeConfigsResource, refusal: RefusedError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=refusal.code,
        error_message=refusal.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _size_of(found: DescribeConfigsResourceResult) -> int:
    """Return the approximate size in bytes of one resource's settings in the response."""
    texts = (found.name, found.value, found.documentation)
    size = SETTING_BYTES + sum(len(text) for text in texts if text is not None)
    return size * (1 + len(found.synonyms))


def result_of(
    definition: Definition, given: list[ConfigLayer], *, is_read_only: bool
) -> DescribeConfigsResourceResult:
    """Return the description of one setting for a DescribeConfigs response. `given` lists the
    sources that set a value, the strongest first.

    If `given` is empty, the value is the declared default, which may be null.
    """
    is_unknown = definition.kind is SettingKind.UNKNOWN
    is_sensitive = is_unknown or definition.kind is SettingKind.PASSWORD
    strongest = given[0] if given else ConfigLayer("", definition.default, ConfigSource.DEFAULT)
    return DescribeConfigsResourceResult(
        name=definition.key,
        value=None if is_sensitive else strongest.text,
        read_only=is_read_only,
        config_source=strongest.source,
        is_sensitive=is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=key, value=None if is_sensitive else text, source=source)
            for key, text, source in given
        ],
        config_type=definition.kind,
        documentation=definition.documentation,
    )


def _unknown(key: str) -> Definition:
    """Return a declaration for a stored setting whose key is unknown. As in Kafka, the value of
    such a setting is hidden."""
    return Definition(
        key=key, field_name="", kind=SettingKind.UNKNOWN, default=None, doc="Unknown."
    )
