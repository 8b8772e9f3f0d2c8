"""Check of the object store before a tiered topic is created. Pure except for awaiting the store.

If the store refuses this broker (wrong credentials, no such bucket), a later copy would fail, and
only the broker's log would show it. A store that is down is no reason to refuse a topic, because
its segments can be copied later.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

from ottla.model.errors import ErrorCode
from ottla.model.security.acls import AclOperation, ResourceType
from ottla.model.settings.storage.tiered_topics import is_tiered_text
from ottla.model.settings.storage.topic import REMOTE_STORAGE_ENABLE
from ottla.node.admin.alter_configs import ForwardHandler
from ottla.node.admin.merged_results import merged
from ottla.node.authorization.questions import may, may_on_cluster
from ottla.node.network.dispatch import Dispatcher, Handler, HandlerResult, RequestContext
from ottla.wire.apis import CREATE_TOPICS
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import (
    CreatableTopicResult,
    CreateTopicsResponse,
)


class TieredCreation:
    """Check of the object store. It is made before the handler of CreateTopics runs."""

    def __init__(self, refusal: Callable[[], Awaitable[str]]) -> None:
        """Create the check. `refusal` returns the reason for which the store refuses this broker,
        or an empty text if the store accepts it."""
        self._refusal = refusal

    def wrap_handlers(self, dispatcher: Dispatcher) -> None:
        """Wrap the registered handler of CreateTopics."""
        dispatcher.wrap(CREATE_TOPICS, self._before)

    def _before(self, handler: Handler) -> Handler:
        # The API is decided by the controller, so that its handler has this type.
        forward = cast(ForwardHandler, handler)

        def handle(context: RequestContext, request: CreateTopicsRequest) -> HandlerResult:
            tiered = [index for index, one in enumerate(request.topics) if is_tiered(one)]
            if not tiered or not _may_create(context, request.topics[tiered[0]].name):
                return forward(context, request)
            return self._checked(context, request, tiered, forward)

        return handle

    async def _checked(
        self,
        context: RequestContext,
        request: CreateTopicsRequest,
        tiered: list[int],
        forward: ForwardHandler,
    ) -> Any:
        reason = await self._refusal()
        if not reason:
            result: Any = forward(context, request)
            return await result if isinstance(result, Coroutine) else result
        topics = request.topics
        ours = {
            index: CreatableTopicResult(
                name=topics[index].name,
                error_code=ErrorCode.INVALID_CONFIG,
                error_message=f"{REMOTE_STORAGE_ENABLE}: {reason}",
            )
            for index in tiered
        }

        def merge(answer: CreateTopicsResponse) -> CreateTopicsResponse:
            answer.topics = merged(len(topics), ours, answer.topics)
            return answer

        left = [one for index, one in enumerate(topics) if index not in ours]
        if not left:
            return merge(CreateTopicsResponse())
        rest = CreateTopicsRequest(
            topics=left, timeout_ms=request.timeout_ms, validate_only=request.validate_only
        )
        result = forward(context, rest, cast(Any, merge))
        return await result if isinstance(result, Coroutine) else result


def is_tiered(topic: CreatableTopic) -> bool:
    """Return whether a CreateTopics request enables tiered storage for this topic."""
    return any(
        one.name == REMOTE_STORAGE_ENABLE and is_tiered_text(one.value) for one in topic.configs
    )


def _may_create(context: RequestContext, name: str) -> bool:
    return may_on_cluster(context.permissions, AclOperation.CREATE) or may(
        context.permissions, AclOperation.CREATE, ResourceType.TOPIC, name, is_logged=False
    )
