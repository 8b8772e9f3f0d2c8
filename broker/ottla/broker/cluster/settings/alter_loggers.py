"""IncrementalAlterConfigs and AlterConfigs: changes loggers of this broker here, and forwards all
other changes to the controller.

Pure but for awaiting the controller. A request may change both: each resource is answered
separately, in the order of the request. Two kinds of changes are refused here because only this
broker can check them: cordoning a directory that it does not have, and a number of threads that it
cannot change to. A request with many elements is processed in steps, and encoded for the controller
off the event loop.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from ottla.broker.cluster.settings.log_levels import LogLevels
from ottla.broker.cluster.settings.merged_results import merged
from ottla.broker.cluster.settings.topic_settings import CLUSTER_DEFAULT
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import BROKER_RESOURCE
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import parse_node_id
from ottla.model.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.declare import whole_number
from ottla.model.settings.dynamic import described_definitions
from ottla.model.settings.kafka_keys import THREAD_POOLS
from ottla.model.settings.resources import AlterOperation, ConfigKind
from ottla.model.settings.storage.cleaner import THREADS, check_thread_count
from ottla.model.settings.storage.cordoned import CORDONED_LOG_DIRS, check_cordoned, parse_cordoned
from ottla.node.authorization.questions import may
from ottla.node.network.dispatch import HandlerResult, Permissions, RequestContext
from ottla.node.network.steps import STEP_COST, Answer, StepPace, begun
from ottla.wire.codec_types import Message
from ottla.wire.messages.alter_configs_request import AlterConfigsRequest
from ottla.wire.messages.alter_configs_request import AlterConfigsResource as ReplacedResource
from ottla.wire.messages.alter_configs_response import AlterConfigsResourceResponse as Replaced
from ottla.wire.messages.alter_configs_response import AlterConfigsResponse
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

Outcome: TypeAlias = AlterConfigsResourceResponse
Request: TypeAlias = IncrementalAlterConfigsRequest | AlterConfigsRequest
Resource: TypeAlias = AlterConfigsResource | ReplacedResource

THREAD_KEYS = THREAD_POOLS | {THREADS}
"""Settings for numbers of threads, including those of pools that are not used. They are checked,
since Kafka's tools may rely on the refusals."""

LOGGERS_COST = 25
"""Cost of a resource of loggers in a step, since it may name all loggers."""


class ForwardHandler(Protocol):
    """Handler that forwards a request to the controller."""

    def __call__(
        self,
        context: RequestContext,
        request: Message,
        finish: Callable[[Any], Message] | None = None,
    ) -> HandlerResult:
        """Answer with the result of `finish` on the controller's response."""


class AlterLoggersApi:
    """Handler of IncrementalAlterConfigs (versions 0 and 1) and AlterConfigs (0 to 2), which has no
    loggers."""

    def __init__(
        self,
        config: BrokerConfig,
        loggers: LogLevels,
        forward: ForwardHandler,
        forward_large: ForwardHandler | None = None,
        image: Callable[[], MetadataImage] = MetadataImage,
        on_levels: Callable[[], None] = lambda: None,
    ) -> None:
        """`forward_large` forwards requests that are costly to encode; by default it is `forward`.

        `on_levels` is called after a change of levels.
        """
        self._config = config
        self._image = image
        self._on_levels = on_levels
        self._node_id = config.node_id
        self._log_dirs = config.log_dirs
        self._loggers = loggers
        self._forward = forward
        self._forward_large = forward_large or forward

    def handle(
        self,
        context: RequestContext,
        request: Request,
        finish: Callable[[Any], Message] | None = None,
    ) -> HandlerResult:
        """Change the named loggers, and forward all other resources.

        `finish` adds results that were decided earlier.
        """
        return begun(self._answer(context, request, finish or (lambda answer: answer)))

    def _answer(
        self,
        context: RequestContext,
        request: Request,
        finish_all: Callable[[Any], Message],
    ) -> Answer:
        resources: list[Any] = list(request.resources)
        is_replaced = isinstance(request, AlterConfigsRequest)
        pace = StepPace()
        rest: list[Any] = []
        times = Counter[str]()
        change_count = 0
        for one in resources:
            if self._is_ours(one):
                times[one.resource_name] += one.resource_type == ConfigKind.BROKER_LOGGER
            else:
                rest.append(one)
                change_count += 1 + len(one.configs)
            if pace.is_due():
                yield
        forward = self._forward_large if change_count > STEP_COST else self._forward
        if len(rest) == len(resources):
            return forward(context, request, finish_all)
        ours: dict[int, Outcome | Replaced] = {}
        for index, one in enumerate(resources):
            if not self._is_ours(one):
                continue
            is_repeated = times[one.resource_name] > 1
            ours[index] = self._outcome(
                one, context.permissions, is_repeated=is_repeated, is_dry=request.validate_only
            )
            if pace.is_due(LOGGERS_COST):
                yield

        def finish(answer: Any) -> Message:
            answer.responses = merged(len(resources), ours, answer.responses)
            return finish_all(answer)

        if not rest:
            return finish(
                AlterConfigsResponse() if is_replaced else IncrementalAlterConfigsResponse()
            )
        theirs = type(request)(resources=rest, validate_only=request.validate_only)
        return forward(context, theirs, finish)

    def _is_ours(self, resource: Resource) -> bool:
        """Return whether a resource is decided here, without the controller."""
        if isinstance(resource, AlterConfigsResource) and (
            resource.resource_type == ConfigKind.BROKER_LOGGER
        ):
            return True
        return bool(self._obstacle(resource))

    def _obstacle(self, resource: Resource) -> str:
        """Return the reason why this broker cannot use these settings, or an empty text if it can.

        Settings of another broker are not checked.
        """
        name = resource.resource_name
        if resource.resource_type != ConfigKind.BROKER or (
            name not in (CLUSTER_DEFAULT, str(self._node_id))
        ):
            return ""
        changes: dict[str, str | None]
        if isinstance(resource, AlterConfigsResource):
            changes = {
                change.name: None
                if change.config_operation == AlterOperation.DELETE
                else change.value
                for change in resource.configs
            }
        else:
            changes = dict.fromkeys(self._image().config(BROKER_RESOURCE, name))
            changes |= {change.name: change.value for change in resource.configs}
        try:
            cordoned = changes.get(CORDONED_LOG_DIRS)
            if cordoned is not None and name != CLUSTER_DEFAULT:
                check_cordoned(parse_cordoned(cordoned), self._log_dirs)
            for key in changes:
                if key in THREAD_KEYS:
                    self._check_threads(name, key, changes[key])
        except ConfigError as error:
            return str(error)
        except ValueError:
            pass  # The controller refuses it, like any invalid value.
        return ""

    def _check_threads(self, name: str, key: str, text: str | None) -> None:
        """Raise ConfigError if a change would leave the broker with too many or too few threads."""
        image = self._image()
        layers: list[Mapping[str, str | None]] = [
            image.config(BROKER_RESOURCE, str(self._node_id)),
            image.config(BROKER_RESOURCE, CLUSTER_DEFAULT),
            self._config.texts,
            {key: described_definitions()[key].default},
        ]
        now = next(layer[key] for layer in layers if layer.get(key) is not None)
        changed = 1 if name == CLUSTER_DEFAULT else 0
        layers[changed] = {key: text}
        after = next(layer[key] for layer in layers if layer.get(key) is not None)
        assert now is not None and after is not None, "the default is never null"
        if after != now:
            check_thread_count(whole_number(after.strip()), whole_number(now.strip()), key)

    def _outcome(
        self,
        resource: Resource,
        permissions: Permissions | None,
        *,
        is_repeated: bool,
        is_dry: bool,
    ) -> Outcome | Replaced:
        kind = Outcome if isinstance(resource, AlterConfigsResource) else Replaced
        outcome = kind(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            if not may(permissions, AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
                raise RefusedError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            self._alter(resource, is_repeated=is_repeated, is_dry=is_dry)
        except RefusedError as refusal:
            outcome.error_code = refusal.code
            outcome.error_message = refusal.message
        return outcome

    def _alter(self, resource: Resource, *, is_repeated: bool, is_dry: bool) -> None:
        if not isinstance(resource, AlterConfigsResource) or (
            resource.resource_type == ConfigKind.BROKER
        ):
            raise RefusedError(ErrorCode.INVALID_REQUEST, self._obstacle(resource))
        if is_repeated:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        name, changes = resource.resource_name, resource.configs
        if len({change.name for change in changes}) < len(changes):
            raise RefusedError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
        node_id = parse_node_id(name)
        if node_id is None:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}"
            )
        if node_id != self._node_id:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected node id. Expected {self._node_id}, but received {name}",
            )
        self._loggers.check(changes)
        if not is_dry:
            self._loggers.apply(changes)
            self._on_levels()
