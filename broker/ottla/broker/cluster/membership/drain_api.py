"""DrainBroker (Ottla's own, key 20001): the broker transfers all its leaderships to other brokers,
and continues as a follower. Pure.

The response is sent when the controller has agreed. The operator may then continue at once, for
example by restarting the machine. A drain lasts until it is undone or the process ends.
"""

from collections.abc import Awaitable
from typing import Protocol

from ottla.model.errors import RefusedError
from ottla.node.network.dispatch import RequestContext
from ottla.wire.codec_types import Message
from ottla.wire.messages.drain_broker_request import DrainBrokerRequest
from ottla.wire.messages.drain_broker_response import DrainBrokerResponse
from ottla.wire.refusals import refuse


class Drainable(Protocol):
    """The part of a broker that the handler of DrainBroker calls to move leaderships away.

    Both methods raise RefusedError if the controller refuses or takes too long.
    """

    def drain(self) -> Awaitable[None]:
        """Drain this broker: the controller moves all leaderships to other brokers. Returns when
        the broker leads no partition and is fenced."""

    def undo_drain(self) -> Awaitable[None]:
        """Undo a drain of this broker, so that it may lead again. Returns when the controller has
        unfenced it."""


class DrainApi:
    """Handler of DrainBroker, version 0, which moves all leaderships away from this broker."""

    def __init__(self, broker: Drainable) -> None:
        self._broker = broker

    async def handle(self, context: RequestContext, request: DrainBrokerRequest) -> Message:
        """Drain the broker (transfer its leaderships to other brokers) or undo a drain. Answers
        when the controller has agreed."""
        try:
            await (self._broker.undo_drain() if request.undo else self._broker.drain())
        except RefusedError as error:
            return refuse(request, error, context.api_version)
        return DrainBrokerResponse()
