"""Admin requests: the active controller decides, this broker passes them on.

Pure but for the await of the controller.  After a change the answer waits until this broker has
followed its records, so that a client which created a topic finds it at the broker that said so.
It does not wait for the logs: requests that name them do (`logs/early_requests`).
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

FORWARDED_API_KEYS = frozenset(REFUSALS)
"""The forwarded APIs that the controller decides in this release."""

SEEN_HERE_MS_MAX = 5_000
"""How long an answer waits for our own image; the change itself is committed by then."""

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

        slot = context.slot
        is_plain = slot.amend is None and slot.charge is None and slot.trace is None
        response_kind = response_class(request.API_KEY)
        if (
            is_plain
            and finish is _as_it_is
            and throttle_ms <= 0
            and len(answer.body) >= APART_FROM_BYTES
            and not hasattr(response_kind, "error_code")
        ):
            # Nothing of it is ours: a hundred topics come with thousands of settings.
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
        return Apart(decoded, seen)

    def _when_seen(
        self,
        context: RequestContext,
        answer: Message | bytes,
        metadata_offset: Offset,
        timeout_ms: int,
    ) -> Message | None:
        """Return the answer if our own image has what it says; else it is given later.

        One that is encoded already is given here in any case.
        """
        metadata = self._metadata

        def is_seen() -> bool:
            return metadata.followed_offset >= metadata_offset

        def give() -> None:
            if isinstance(answer, bytes):
                context.slot.complete_body(answer)
            else:
                context.slot.complete(answer)

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


def _as_it_is(answer: Message) -> Message:
    return answer
