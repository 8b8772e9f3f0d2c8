"""IncrementalAlterConfigs: this broker's loggers here, all else by the controller.

Pure but for the await of the controller.  A request may change both: each resource is answered for
itself, in the order asked.  What this broker alone can judge it refuses here: to cordon a directory
that it does not have, and more or fewer cleaners than it can change to.  A request that names much
is looked at in steps, and encoded for the controller apart from the loop.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from ottla.broker.authorization.questions import may
from ottla.broker.cluster.log_levels import LogLevels
from ottla.broker.cluster.topic_settings import CLUSTER_DEFAULT
from ottla.broker.cluster.woven_results import woven
from ottla.broker.network.dispatch import HandlerResult, Permissions, RequestContext
from ottla.broker.network.steps import STEP_COST, Answer, StepPace, begun
from ottla.model.acls import CLUSTER_NAME, AclOperation, ResourceType
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import parse_node_id
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.cleaner import THREADS, check_thread_count
from ottla.model.settings.cordoned import CORDONED_LOG_DIRS, check_cordoned, parse_cordoned
from ottla.model.settings.resources import ConfigKind
from ottla.wire.codec_types import Message
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

Outcome = AlterConfigsResourceResponse

LOGGERS_COST = 25
"""What a resource of loggers costs a step: all loggers there are may be named in it."""


class Forwarding(Protocol):
    """Has the controller decide."""

    def __call__(
        self,
        context: RequestContext,
        request: Message,
        finish: Callable[[Any], Message] | None = None,
    ) -> HandlerResult:
        """Answer with what `finish` makes of the controller's answer."""


class AlterLoggersApi:
    """Serves IncrementalAlterConfigs 0-1."""

    def __init__(
        self,
        config: BrokerConfig,
        loggers: LogLevels,
        forward: Forwarding,
        forward_large: Forwarding | None = None,
        cleaners_in_force: Callable[[], int] = lambda: 1,
        on_levels: Callable[[], None] = lambda: None,
    ) -> None:
        """`forward_large` takes requests that are costly to encode; by default `forward` does.

        `on_levels` is told when loggers have other levels.
        """
        self._cleaners_in_force = cleaners_in_force
        self._on_levels = on_levels
        self._node_id = config.node_id
        self._log_dirs = config.log_dirs
        self._loggers = loggers
        self._forward = forward
        self._forward_large = forward_large or forward

    def handle(
        self,
        context: RequestContext,
        request: IncrementalAlterConfigsRequest,
        finish: Callable[[Any], Message] | None = None,
    ) -> HandlerResult:
        """Change the loggers named, and pass everything else on.

        `finish` puts in what was decided before.
        """
        return begun(self._answer(context, request, finish or (lambda answer: answer)))

    def _answer(
        self,
        context: RequestContext,
        request: IncrementalAlterConfigsRequest,
        finish_all: Callable[[Any], Message],
    ) -> Answer:
        resources = request.resources
        pace = StepPace()
        rest: list[AlterConfigsResource] = []
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
        ours: dict[int, Outcome] = {}
        for index, one in enumerate(resources):
            if not self._is_ours(one):
                continue
            is_repeated = times[one.resource_name] > 1
            ours[index] = self._outcome(
                one, context.permissions, is_repeated=is_repeated, is_dry=request.validate_only
            )
            if pace.is_due(LOGGERS_COST):
                yield

        def finish(answer: IncrementalAlterConfigsResponse) -> Message:
            answer.responses = woven(len(resources), ours, answer.responses)
            return finish_all(answer)

        if not rest:
            return finish(IncrementalAlterConfigsResponse())
        theirs = IncrementalAlterConfigsRequest(resources=rest, validate_only=request.validate_only)
        return forward(context, theirs, finish)

    def _is_ours(self, resource: AlterConfigsResource) -> bool:
        """Return whether a resource is answered here, without the controller."""
        return resource.resource_type == ConfigKind.BROKER_LOGGER or bool(self._obstacle(resource))

    def _obstacle(self, resource: AlterConfigsResource) -> str:
        """Return why this broker cannot be as it is told to; empty where it can, or need not."""
        if resource.resource_type != ConfigKind.BROKER:
            return ""
        name = resource.resource_name
        for change in resource.configs:
            if change.value is None:
                continue
            try:
                if change.name == CORDONED_LOG_DIRS and name == str(self._node_id):
                    check_cordoned(parse_cordoned(change.value), self._log_dirs)
                elif change.name == THREADS and name in (CLUSTER_DEFAULT, str(self._node_id)):
                    check_thread_count(int(change.value), self._cleaners_in_force())
            except ConfigError as error:
                return str(error)
            except ValueError:
                pass  # the controller refuses it, as any bad value
        return ""

    def _outcome(
        self,
        resource: AlterConfigsResource,
        permissions: Permissions | None,
        *,
        is_repeated: bool,
        is_dry: bool,
    ) -> Outcome:
        outcome = Outcome(
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

    def _alter(self, resource: AlterConfigsResource, *, is_repeated: bool, is_dry: bool) -> None:
        if resource.resource_type == ConfigKind.BROKER:
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
