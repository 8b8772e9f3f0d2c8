"""Passes requests that this broker sends to itself to its handlers directly, without a socket or
encoding.

A broker that coordinates a transaction often leads some of the transaction's partitions too. A
request to itself over the loopback interface would cost four system calls, twice the encoding, and
several event-loop iterations. Such requests are not counted as client requests.
"""

from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

import trio

from ottla.model.seams import Clock
from ottla.node.network.dispatch import Dispatcher, Peer, RequestContext
from ottla.node.network.response_queue import ResponseSlot
from ottla.wire.apis import API
from ottla.wire.codec_types import Message
from ottla.wire.headers import RequestHeader

R = TypeVar("R", bound=Message)

NO_CONNECTION = -1


class LoopbackContext(RequestContext):
    """Context of a request that this broker sends to itself. The response is stored as a message
    and not encoded."""

    __slots__ = ("answered", "fault", "response")

    def __init__(self, header: RequestHeader, peer: Peer, arrived_ms: int) -> None:
        super().__init__(NullSlotOwner(), header, 0, 0, peer, arrived_ms)
        self.answered = trio.Event()
        self.response: Message | None = None
        self.fault: Exception | None = None

    def complete_as(self, response: Message, version: int) -> None:
        """Store the response to this broker's own request. Does nothing if the request was
        abandoned. `version` is not used."""
        if not self.is_abandoned:
            self.response = response
            self.complete_frame([])
            self.answered.set()

    def fail(self, fault: Exception) -> None:
        """Fail this broker's own request with the exception that prevented the response."""
        self.fault = fault
        self.answered.set()


class NullSlotOwner:
    """Owner of a response slot without a connection: there is nothing to send, read or close."""

    def on_slot_completed(self, slot: ResponseSlot) -> None:
        """Do nothing, since the caller reads the response from the slot itself."""

    def on_answer_failed(self, fault: Exception) -> None:
        """Do nothing, since the slot itself stores the error that prevented the response."""

    def mute_until(self, deadline_ms: int) -> None:
        """Do nothing, since a broker does not throttle itself."""

    def on_steps(self, slot: ResponseSlot, steps: Generator[None, None, object]) -> None:
        """Raise AssertionError: no API that a broker requests from itself builds its response in
        steps."""
        raise AssertionError("steps for a request without a connection")


class Loopback:
    """Port through which a broker sends requests to itself, with the interface of
    `BrokerConnection`."""

    def __init__(self, dispatcher: Dispatcher, clock: Clock) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        self._peer = Peer(
            connection_id=NO_CONNECTION,
            listener_name="",
            peer_host="",
            peer_port=0,
            local_host="",
            local_port=0,
        )

    def version_of(self, api_key: int) -> int:
        """Return the highest version of an API for a request to this broker itself, which always
        supports it."""
        return API[api_key].latest_stable

    async def request(self, message: Message, response: type[R], version: int | None = None) -> R:
        """Call this broker's own handler of a request, and return the response.

        Raises NotServedYetError while this broker is starting. Also raises any error that prevented
        the response.
        """
        api_key = message.API_KEY
        version = self.version_of(api_key) if version is None else version
        header = RequestHeader(api_key, version, None, 0)
        context = LoopbackContext(header, self._peer, self._clock.monotonic_ms())
        try:
            result: Any = self._dispatcher.serve_own(context, message)
            while isinstance(result, Generator | Coroutine):
                if isinstance(result, Coroutine):
                    result = await result
                else:
                    result = await _stepped(result)
            if result is None:
                await context.answered.wait()
                if context.fault is not None:
                    raise context.fault
                result = context.response
        finally:
            if not context.is_done:
                context.abandon()
        assert isinstance(result, response)
        return result

    async def aclose(self) -> None:
        """Do nothing, since a broker's requests to itself have no connection to close."""


async def _stepped(steps: Generator[None, None, object]) -> object:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        await trio.lowlevel.checkpoint()
