"""Check of the object store before a topic is created with tiered storage, or gets it by a change
of its settings. Pure except for awaiting the store.

If the store refuses this broker (wrong credentials, no such bucket), a later copy would fail, and
only the broker's log would show it. A store that is down is no reason to refuse a topic, because
its segments can be copied later.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeAlias, cast

from ottla.broker.cluster.settings.split_changes import ChangeRequest, split_changes
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import TOPIC_RESOURCE
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.security.acls import AclOperation, ResourceType
from ottla.model.settings.resources import ConfigKind
from ottla.model.settings.storage.tiered_topics import is_tiered_text
from ottla.model.settings.storage.topic import REMOTE_STORAGE_ENABLE
from ottla.node.admin.alter_configs import ForwardHandler, gives_tiered_storage
from ottla.node.admin.merged_results import merged
from ottla.node.authorization.questions import may, may_on_cluster
from ottla.node.network.dispatch import Dispatcher, Handler, HandlerResult, RequestContext
from ottla.node.network.steps import Answer, StepPace, begun
from ottla.wire.apis import ALTER_CONFIGS, CREATE_TOPICS, INCREMENTAL_ALTER_CONFIGS
from ottla.wire.codec_types import Message
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import (
    CreatableTopicResult,
    CreateTopicsResponse,
)

Request: TypeAlias = CreateTopicsRequest | ChangeRequest


class StoreRefusals:
    """Check of the object store, made before the handlers of CreateTopics, IncrementalAlterConfigs
    and AlterConfigs run."""

    def __init__(
        self, refusal: Callable[[], Awaitable[str]], image: Callable[[], MetadataImage]
    ) -> None:
        """Create the check. `refusal` returns the reason for which the store refuses this broker,
        or an empty text if the store accepts it."""
        self._refusal = refusal
        self._image = image

    def wrap_handlers(self, dispatcher: Dispatcher) -> None:
        """Wrap the registered handlers of the three APIs."""
        for api_key in (CREATE_TOPICS, INCREMENTAL_ALTER_CONFIGS, ALTER_CONFIGS):
            dispatcher.wrap(api_key, self._before)

    def _before(self, handler: Handler) -> Handler:
        # The APIs are decided by the controller, so that their handlers have this type.
        forward = cast(ForwardHandler, handler)

        def handle(context: RequestContext, request: Request) -> HandlerResult:
            return begun(self._answer(context, request, forward))

        return handle

    def _answer(self, context: RequestContext, request: Request, forward: ForwardHandler) -> Answer:
        pace = StepPace()
        may_start = _may_create if isinstance(request, CreateTopicsRequest) else self._may_alter
        tiered: list[int] = []
        for index, element in enumerate(_elements(request)):
            if is_tiered(element) and may_start(context, element):
                tiered.append(index)
            if pace.is_due(1 + len(element.configs)):
                yield
        if not tiered:
            return forward(context, request)
        return self._checked(context, request, tiered, forward)

    def _may_alter(self, context: RequestContext, resource: Any) -> bool:
        """Return whether a resource is an untiered topic whose settings the client may change."""
        image, name = self._image(), resource.resource_name
        if resource.resource_type != ConfigKind.TOPIC or name not in image.topic_ids:
            return False
        before = image.config(TOPIC_RESOURCE, name).get(REMOTE_STORAGE_ENABLE)
        return not is_tiered_text(before) and may(
            context.permissions,
            AclOperation.ALTER_CONFIGS,
            ResourceType.TOPIC,
            name,
            is_logged=False,
        )

    async def _checked(
        self,
        context: RequestContext,
        request: Request,
        tiered: list[int],
        forward: ForwardHandler,
    ) -> Any:
        reason = await self._refusal()
        if not reason:
            result: Any = forward(context, request)
            return await result if isinstance(result, Coroutine) else result
        refusal = RefusedError(ErrorCode.INVALID_CONFIG, f"{REMOTE_STORAGE_ENABLE}: {reason}")
        refused = dict.fromkeys(tiered, refusal)
        rest: Request
        if isinstance(request, CreateTopicsRequest):
            rest, merge = _split_topics(request, refused)
        else:
            rest, merge = split_changes(request, refused)
        if not _elements(rest):
            return merge(None)
        result = forward(context, rest, merge)
        return await result if isinstance(result, Coroutine) else result


def is_tiered(element: Any) -> bool:
    """Return whether the settings in a request give tiered storage to an element, which is a topic
    to be created or a resource whose settings change."""
    return gives_tiered_storage(element.configs)


def _elements(request: Request) -> Sequence[Any]:
    return request.topics if isinstance(request, CreateTopicsRequest) else request.resources


def _may_create(context: RequestContext, topic: CreatableTopic) -> bool:
    return may_on_cluster(context.permissions, AclOperation.CREATE) or may(
        context.permissions, AclOperation.CREATE, ResourceType.TOPIC, topic.name, is_logged=False
    )


def _split_topics(
    request: CreateTopicsRequest, refused: Mapping[int, RefusedError]
) -> tuple[CreateTopicsRequest, Callable[[Any], Message]]:
    """Return the request without its refused topics, and a function that adds the errors of these
    topics to the response. The function takes None for the response if no topic is left."""
    topics = request.topics
    ours = {
        index: CreatableTopicResult(
            name=topics[index].name, error_code=refusal.code, error_message=refusal.message
        )
        for index, refusal in refused.items()
    }

    def merge(answer: Any) -> Message:
        answer = answer or CreateTopicsResponse()
        answer.topics = merged(len(topics), ours, answer.topics)
        result: Message = answer
        return result

    left = [one for index, one in enumerate(topics) if index not in ours]
    rest = CreateTopicsRequest(
        topics=left, timeout_ms=request.timeout_ms, validate_only=request.validate_only
    )
    return rest, merge
