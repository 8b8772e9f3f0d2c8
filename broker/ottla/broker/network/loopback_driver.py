"""Requests of this broker to itself: served by its handlers, without a socket and without bytes.

A broker that coordinates a transaction often leads some of its partitions too.  What it would ask
itself by way of the loopback interface costs four system calls, twice the coding, and some turns of
the loop.  Such requests are not counted among those of clients.
"""

from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

import trio

from ottla.broker.network.dispatch import Dispatcher, Peer, RequestContext
from ottla.broker.network.response_queue import ResponseSlot
from ottla.model.seams import Clock
from ottla.wire.apis import API
from ottla.wire.codec_types import Message
from ottla.wire.headers import RequestHeader

R = TypeVar("R", bound=Message)

NO_CONNECTION = -1


class LoopbackSlot(ResponseSlot):
    """The place of one answer, which is taken as the message it is."""

    __slots__ = ("answered", "fault", "response")

    def __init__(self, header: RequestHeader) -> None:
        super().__init__(NoConnection(), header)
        self.answered = trio.Event()
        self.response: Message | None = None
        self.fault: Exception | None = None

    def complete_as(self, response: Message, version: int) -> None:
        """Answer, unless the request is no longer waited for."""
        if not self.is_abandoned:
            self.response = response
            self._finish([])
            self.answered.set()

    def fail(self, fault: Exception) -> None:
        """Have the request raise what hindered its answer."""
        self.fault = fault
        self.answered.set()


class NoConnection:
    """The owner of a slot that no connection has: nothing is to be sent, read or closed."""

    def on_slot_completed(self, slot: ResponseSlot) -> None:
        """Do nothing: the slot itself is looked at."""

    def on_answer_failed(self, fault: Exception) -> None:
        """Do nothing: the slot keeps the fault."""

    def mute_until(self, deadline_ms: int) -> None:
        """Do nothing: a broker does not throttle itself."""

    def on_steps(self, slot: ResponseSlot, steps: Generator[None, None, object]) -> None:
        """Raise AssertionError: no API that a broker asks of itself answers so."""
        raise AssertionError("steps for a request without a connection")


class Loopback:
    """What a broker asks itself; stands in for a `BrokerConnection` to it."""

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
        """Return the highest version, which is served here too."""
        return API[api_key].latest_stable

    async def request(self, message: Message, response: type[R], version: int | None = None) -> R:
        """Serve a request and return its answer.

        Raises NotServedYetError while this broker starts, and whatever hindered the answer.
        """
        api_key = message.API_KEY
        version = self.version_of(api_key) if version is None else version
        slot = LoopbackSlot(RequestHeader(api_key, version, 0, None, 0))
        context = RequestContext(slot.header, self._peer, slot, self._clock.monotonic_ms())
        try:
            result: Any = self._dispatcher.serve_own(context, message)
            while isinstance(result, Generator | Coroutine):
                if isinstance(result, Coroutine):
                    result = await result
                else:
                    result = await _stepped(result)
            if result is None:
                await slot.answered.wait()
                if slot.fault is not None:
                    raise slot.fault
                result = slot.response
        finally:
            if not slot.is_done:
                slot.abandon()
        assert isinstance(result, response)
        return result

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""


async def _stepped(steps: Generator[None, None, object]) -> object:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        await trio.lowlevel.checkpoint()
