"""Admin requests: the active controller decides, this broker passes them on.

Pure but for the await of the controller.  After a change the answer waits until this broker's own
image has its records, and until the logs of topics that it made are open here, so that a client
which created a topic finds it at the broker that said so.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from ottla.broker.cluster.forwarding import ControllerDoor, forward_bytes
from ottla.broker.cluster.metadata_cache import MetadataCache, answer_when
from ottla.broker.cluster.refusals import REFUSALS, refuse
from ottla.broker.network.dispatch import HandlerResult, RequestContext
from ottla.broker.network.purgatory import Purgatory
from ottla.broker.network.steps import Apart
from ottla.model.errors import RefusedError
from ottla.model.ids import Offset
from ottla.model.limits import KIB
from ottla.model.settings.broker import BrokerConfig
from ottla.wire.apis import response_class
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Message
from ottla.wire.messages.create_partitions_request import CreatePartitionsRequest
from ottla.wire.messages.create_topics_request import CreateTopicsRequest

FORWARDED_API_KEYS = frozenset(REFUSALS)
"""The forwarded APIs that the controller decides in this release."""

SEEN_HERE_MS_MAX = 5_000
"""How long an answer waits for our own image; the change itself is committed by then."""

LOGS_WAIT_MS_MAX = 2_000
"""How long an answer waits for the logs of the topics it made to be open here.

Where that takes longer, clients try again; meanwhile whatever they ask on this connection next,
such as the metadata, would wait as well."""

APART_FROM_BYTES = 16 * KIB
"""Size of a request or an answer that is encoded, decoded or refused apart from the loop."""


class AdminApi:
    """Serves every API of `FORWARDED_API_KEYS`."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        controller: ControllerDoor,
        metadata: MetadataCache,
        purgatory: Purgatory,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._controller = controller
        self._metadata = metadata
        self._purgatory = purgatory
        self._now_ms = now_ms

    def handle(
        self,
        context: RequestContext,
        request: Message,
        finish: Callable[[Any], Message] | None = None,
    ) -> Coroutine[Any, Any, Message | None]:
        """Forward the request and answer with what the controller says.

        Where a part of the answer is this broker's own, `finish` puts it in.
        """
        finish = finish or _as_it_is
        return self._forward(context, request, encode(request, context.api_version), finish)

    def handle_large(
        self,
        context: RequestContext,
        request: Message,
        finish: Callable[[Any], Message] | None = None,
    ) -> HandlerResult:
        """Forward a request with many elements: it is encoded apart from the loop.

        `finish` may be called apart from the loop too.
        """
        return Apart(
            lambda: encode(request, context.api_version, is_large=True),
            lambda body: self._forward(context, request, body, finish or _as_it_is),
        )

    async def _forward(
        self,
        context: RequestContext,
        request: Message,
        body: bytes,
        finish: Callable[[Any], Message],
    ) -> Any:
        version = context.api_version
        timeout_ms = self._config.request_timeout_ms
        asked_ms = getattr(request, "timeout_ms", 0)
        if 0 < asked_ms < timeout_ms:
            timeout_ms = asked_ms
        try:
            answer = await forward_bytes(
                self._controller, context, request, body, version=version, timeout_ms=timeout_ms
            )
        except RefusedError as refusal:
            refused = refusal
            if len(body) < APART_FROM_BYTES:
                return finish(refuse(request, refused, version))
            return Apart(lambda: finish(refuse(request, refused, version)), _as_it_is)

        throttle_ms = answer.throttle_time_ms
        if throttle_ms > 0:
            # Here and nowhere else: the controller sees brokers, not the client's connection.
            context.slot.mute_until(self._now_ms() + throttle_ms)

        def decoded() -> Message:
            response = decode(response_class(request.API_KEY), version, answer.body)
            if throttle_ms > 0 and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_ms
            return finish(response)

        def seen(response: Message) -> Message | None:
            offset = Offset(answer.metadata_offset)
            return self._when_seen(context, request, response, offset, timeout_ms)

        if len(answer.body) < APART_FROM_BYTES:
            return seen(decoded())
        return Apart(decoded, seen)

    def _when_seen(
        self,
        context: RequestContext,
        request: Message,
        answer: Message,
        metadata_offset: Offset,
        timeout_ms: int,
    ) -> Message | None:
        """Return the answer if our own image has what it says; else it is given later."""
        metadata = self._metadata
        made = _topics_made(request)

        def is_seen() -> bool:
            return metadata.image.provenance.offset >= metadata_offset

        def are_open() -> bool:
            return not any(map(metadata.is_opening, made))

        def wait_for_logs() -> None:
            answer_when(
                self._purgatory,
                context,
                are_open,
                lambda: context.slot.complete(answer),
                deadline_ms=self._now_ms() + LOGS_WAIT_MS_MAX,
            )

        if is_seen() and are_open():
            return answer
        answer_when(
            self._purgatory,
            context,
            is_seen,
            wait_for_logs,
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
