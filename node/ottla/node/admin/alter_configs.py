"""IncrementalAlterConfigs and AlterConfigs: changes the levels of this node's own loggers, and
forwards all other changes to the active controller.

Pure except for awaiting the controller. A request may contain both kinds of changes. Each resource
is answered separately, in the order of the request. This node refuses invalid changes that only it
can check. A request with many elements is processed in steps, and encoded for the controller off
the event loop.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId, parse_node_id
from ottla.model.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.model.settings.resources import AlterOperation, ConfigKind
from ottla.model.settings.storage.tiered_topics import is_tiered_text
from ottla.model.settings.storage.topic import REMOTE_STORAGE_ENABLE
from ottla.node.admin.log_levels import LogLevels
from ottla.node.admin.merged_results import merged
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

LOGGERS_COST = 25
"""Cost of altering a resource that names loggers, measured in entries of the response. The resource
may name all loggers of the process."""


class ForwardHandler(Protocol):
    """Interface of a function that forwards a client's request to the active controller."""

    def __call__(
        self,
        context: RequestContext,
        request: Message,
        finish: Callable[[Any], Message] | None = None,
    ) -> HandlerResult:
        """Forward a request to the active controller, and return the controller's response. If
        `finish` is not None, returns the result of `finish` on that response."""


class AlterLoggersApi:
    """Handler of IncrementalAlterConfigs (versions 0 and 1) and AlterConfigs (0 to 2). Only
    IncrementalAlterConfigs can change loggers."""

    def __init__(
        self,
        node_id: NodeId,
        loggers: LogLevels,
        forward: ForwardHandler,
        forward_large: ForwardHandler | None = None,
        *,
        obstacle_of: Callable[[Resource], str] = lambda resource: "",
        on_levels: Callable[[], None] = lambda: None,
    ) -> None:
        """Create the handler. `forward_large` forwards requests that are costly to encode; its
        default is `forward`.

        `obstacle_of` returns the reason why this node cannot use the settings of a resource, or an
        empty text. `on_levels` is called after the level of a logger was changed.
        """
        self._node_id = node_id
        self._on_levels = on_levels
        self._obstacle = obstacle_of
        self._loggers = loggers
        self._forward = forward
        self._forward_large = forward_large or forward

    def handle(
        self,
        context: RequestContext,
        request: Request,
        finish: Callable[[Any], Message] | None = None,
    ) -> HandlerResult:
        """Change the levels of the loggers that the request names, and forward all other resources
        to the controller.

        `finish` adds results that were decided earlier to the response.
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
        """Return whether this node itself decides on a resource of the request, without the
        controller."""
        if isinstance(resource, AlterConfigsResource) and (
            resource.resource_type == ConfigKind.BROKER_LOGGER
        ):
            return True
        return bool(self._obstacle(resource))

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
            _check_permission(permissions, resource)
            self._alter(resource, is_repeated=is_repeated, is_dry=is_dry)
        except RefusedError as refusal:
            outcome.error_code = refusal.code
            outcome.error_message = refusal.message
        return outcome

    def _alter(self, resource: Resource, *, is_repeated: bool, is_dry: bool) -> None:
        if not isinstance(resource, AlterConfigsResource) or (
            resource.resource_type != ConfigKind.BROKER_LOGGER
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


def _check_permission(permissions: Permissions | None, resource: Resource) -> None:
    """Raise RefusedError if the client may not change the settings of a resource."""
    kind, name = ResourceType.CLUSTER, CLUSTER_NAME
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if resource.resource_type == ConfigKind.TOPIC:
        kind, name = ResourceType.TOPIC, resource.resource_name
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if not may(permissions, AclOperation.ALTER_CONFIGS, kind, name):
        raise RefusedError(code)


def gives_tiered_storage(configs: Sequence[Any]) -> bool:
    """Return whether settings in a request, of a topic to be created or of a resource to be
    changed, enable tiered storage."""
    return any(
        one.name == REMOTE_STORAGE_ENABLE
        and is_tiered_text(one.value)
        and getattr(one, "config_operation", AlterOperation.SET) == AlterOperation.SET
        for one in configs
    )
