"""Admin requests: the active controller decides, this broker passes them on.

Pure but for the await of the controller.  After a change the answer waits until this broker's own
image has its records, and until the logs of topics that it made are open here, so that a client
which created a topic finds it at the broker that said so.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from ottla.broker.dispatch import RequestContext
from ottla.broker.forwarding import ControllerDoor, forward
from ottla.broker.metadata_cache import MetadataCache, answer_when
from ottla.broker.purgatory import Purgatory
from ottla.broker.refusals import REFUSALS, refuse
from ottla.model.errors import RefusedError
from ottla.model.settings.broker import BrokerConfig
from ottla.wire.codec_types import Message
from ottla.wire.messages.create_partitions_request import CreatePartitionsRequest
from ottla.wire.messages.create_topics_request import CreateTopicsRequest

FORWARDED_API_KEYS = frozenset(REFUSALS)
"""The forwarded APIs that the controller decides in this release."""

SEEN_HERE_MS_MAX = 5_000
"""How long an answer waits for our own image; the change itself is committed by then."""


class AdminApi:
    """Serves every API of `FORWARDED_API_KEYS`."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        controller: ControllerDoor,
        metadata: MetadataCache,
        purgatory: Purgatory,
    ) -> None:
        self._config = config
        self._controller = controller
        self._metadata = metadata
        self._purgatory = purgatory

    def handle(
        self,
        context: RequestContext,
        request: Message,
        finish: Callable[[Any], Message] | None = None,
    ) -> Coroutine[Any, Any, Message | None]:
        """Forward the request and answer with what the controller says.

        Where a part of the answer is this broker's own, `finish` puts it in.
        """
        return self._forward(context, request, finish or _as_it_is)

    async def _forward(
        self, context: RequestContext, request: Message, finish: Callable[[Any], Message]
    ) -> Message | None:
        version = context.api_version
        timeout_ms = self._config.request_timeout_ms
        asked_ms = getattr(request, "timeout_ms", 0)
        if 0 < asked_ms < timeout_ms:
            timeout_ms = asked_ms
        try:
            answer, metadata_offset = await forward(
                self._controller, context, request, version=version, timeout_ms=timeout_ms
            )
        except RefusedError as refusal:
            return finish(refuse(request, refusal, version))
        answer = finish(answer)

        made = _topics_made(request)

        def is_seen() -> bool:
            metadata = self._metadata
            return metadata.image.provenance.offset >= metadata_offset and not any(
                map(metadata.is_opening, made)
            )

        if is_seen():
            return answer
        answer_when(
            self._purgatory,
            context,
            is_seen,
            lambda: context.slot.complete(answer),
            deadline_ms=context.arrived_ms + timeout_ms + SEEN_HERE_MS_MAX,
        )
        return None


def _topics_made(request: Message) -> list[str]:
    """Return the topics that get new logs by a request."""
    if isinstance(request, CreateTopicsRequest | CreatePartitionsRequest):
        return [topic.name for topic in request.topics]
    return []


def _as_it_is(answer: Message) -> Message:
    return answer
