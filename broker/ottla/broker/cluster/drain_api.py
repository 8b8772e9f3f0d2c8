"""DrainBroker (our own, key 20001): lead nothing from now on, but stay and follow.  Pure.

The answer comes when the controller has granted it, so that whoever asked may go on at once: with
a restart of the machine, say.  A drain lasts until it is undone or the process ends.
"""

from collections.abc import Awaitable
from typing import Protocol

from ottla.broker.network.dispatch import RequestContext
from ottla.model.errors import RefusedError
from ottla.wire.messages.drain_broker_request import DrainBrokerRequest
from ottla.wire.messages.drain_broker_response import DrainBrokerResponse


class Drainable(Protocol):
    """Who asks the controller; RefusedError says why it is not done, or not yet."""

    def drain(self) -> Awaitable[None]:
        """Return when this broker leads nothing and is fenced."""

    def undo_drain(self) -> Awaitable[None]:
        """Return when this broker is unfenced again."""


class DrainApi:
    """Serves DrainBroker 0."""

    def __init__(self, broker: Drainable) -> None:
        self._broker = broker

    async def handle(
        self, context: RequestContext, request: DrainBrokerRequest
    ) -> DrainBrokerResponse:
        """Drain, or undo it, and answer when that is done."""
        try:
            await (self._broker.undo_drain() if request.undo else self._broker.drain())
        except RefusedError as error:
            return refused_drain(error)
        return DrainBrokerResponse()


def refused_drain(refusal: RefusedError) -> DrainBrokerResponse:
    """Return the answer to a drain that is refused."""
    return DrainBrokerResponse(error_code=refusal.code, error_message=refusal.message)
