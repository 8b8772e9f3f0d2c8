"""Forwards admin requests from this node's clients to the active controller.

Pure except for awaiting the controller. The response to a change waits until this broker has
applied the records of the change. A client that has created a topic therefore finds the topic at
this broker. The response does not wait until the topic's logs are open; later requests for its
partitions wait for this (`logs/early_requests`).
"""

from collections.abc import Callable, Coroutine
from typing import Any

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.model.limits import KIB
from ottla.node.admin.forwarding import ForwardingPort, forward_bytes
from ottla.node.admin.metadata_cache import MetadataCache, answer_when
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.node.network.purgatory import Purgatory
from ottla.node.network.steps import ThreadWork
from ottla.wire.apis import response_class
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Message
from ottla.wire.refusals import refuse

SEEN_HERE_MS_MAX = 5_000
"""Maximum milliseconds for which the response to an admin request waits until this broker has
applied the change that the response reports. The change is already committed by then."""

APART_FROM_BYTES = 16 * KIB
"""Size in bytes above which an admin request or its response is encoded, decoded or refused in a
thread, off the event loop."""


class AdminApi:
    """Handler of every admin API in `FORWARDED_KEYS`, which forwards the requests to the active
    controller."""

    def __init__(
        self,
        *,
        timeout_ms: int,
        controller: ForwardingPort,
        metadata: MetadataCache,
        purgatory: Purgatory,
        now_ms: Callable[[], int],
    ) -> None:
        self._timeout_ms = timeout_ms
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
        """Forward an admin request to the active controller, and return the controller's response
        to the client.

        `finish` adds the parts of the response that this broker decides.
        """
        finish = finish or _as_it_is
        return self._forward(context, request, encode(request, context.api_version), finish)

    def handle_large(
        self,
        context: RequestContext,
        request: Message,
        finish: Callable[[Any], Message] | None = None,
    ) -> HandlerResult:
        """Forward an admin request with many elements to the active controller. The request is
        encoded off the event loop.

        `finish` adds the parts of the response that this broker decides. It may also be called off
        the event loop.
        """
        return ThreadWork(
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
        timeout_ms = self._timeout_ms
        asked_ms = getattr(request, "timeout_ms", 0)
        if 0 < asked_ms < timeout_ms:
            timeout_ms = asked_ms
        try:
            answer = await forward_bytes(
                self._controller, context, request, body, version=version, timeout_ms=timeout_ms
            )
        except RefusedError as refusal:
            error = refusal
            if len(body) < APART_FROM_BYTES:
                return finish(refusal_of(request, error, version))
            return ThreadWork(lambda: finish(refusal_of(request, error, version)), _as_it_is)

        throttle_ms = answer.throttle_time_ms
        if throttle_ms > 0:
            # Only this broker can throttle the client: controllers see brokers, not its connection.
            context.mute_until(self._now_ms() + throttle_ms)

        is_plain = context.amend is None and context.charge is None and context.trace is None
        response_kind = response_class(request.API_KEY)
        if (
            is_plain
            and finish is _as_it_is
            and throttle_ms <= 0
            and len(answer.body) >= APART_FROM_BYTES
            and not hasattr(response_kind, "error_code")
        ):
            # No part of it is decided here.  A hundred topics have thousands of settings.
            offset = Offset(answer.metadata_offset)
            return self._when_seen(context, answer.body, offset, timeout_ms)

        def decoded() -> Message:
            response = decode(response_kind, version, answer.body)
            if throttle_ms > 0 and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_ms
            return finish(response)

        def seen(response: Message) -> Message | None:
            offset = Offset(answer.metadata_offset)
            return self._when_seen(context, response, offset, timeout_ms)

        if len(answer.body) < APART_FROM_BYTES:
            return seen(decoded())
        return ThreadWork(decoded, seen)

    def _when_seen(
        self,
        context: RequestContext,
        answer: Message | bytes,
        metadata_offset: Offset,
        timeout_ms: int,
    ) -> Message | None:
        """Return the response to an admin request if this broker's metadata image contains the
        change. Otherwise return None, and complete the response slot when the image contains the
        change or the timeout ends.

        For an encoded response, the result is always None.
        """
        metadata = self._metadata

        def is_seen() -> bool:
            return metadata.followed_offset >= metadata_offset

        def give() -> None:
            if isinstance(answer, bytes):
                context.complete_body(answer)
            else:
                context.complete(answer)

        if isinstance(answer, Message) and is_seen():
            return answer
        answer_when(
            self._purgatory,
            context,
            is_seen,
            give,
            deadline_ms=context.arrived_ms + timeout_ms + SEEN_HERE_MS_MAX,
        )
        return None


def refusal_of(request: Message, refusal: RefusedError, version: int) -> Message:
    """Return a response that refuses an admin request as a whole, with an error code."""
    if refusal.code is ErrorCode.NETWORK_EXCEPTION:
        # The error is between this broker and the controllers, not in the client's network.
        refusal = RefusedError(ErrorCode.REQUEST_TIMED_OUT, refusal.message)
    return refuse(request, refusal, version)


def _as_it_is(answer: Message) -> Message:
    return answer
