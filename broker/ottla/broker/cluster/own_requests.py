"""Who may send Ottla's own requests (api keys from 20000).  Pure.

Without an authorizer the connection is all there is to go by.  Requests that only read are open to
every client.  Those that change state follow `ottla.admin.requests`: from this machine alone
(`loopback`), from `any` client, or from `none`.  With an authorizer their rows in
`wire/api_permissions` decide instead, wherever the client is.
"""

from collections.abc import Callable
from typing import TypeVar

from ottla.broker.network.dispatch import HandlerResult, Peer, RequestContext
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.endpoints import is_loopback
from ottla.wire.apis import (
    CLEAN_LOGS,
    DESCRIBE_CLEANER,
    DESCRIBE_CLIENT_INSTANCES,
    DESCRIBE_NODE,
    DESCRIBE_QUOTA_USAGE,
    DRAIN_BROKER,
    TAIL_CLIENT_METRICS,
)
from ottla.wire.codec_types import Message

READING_KEYS = frozenset(
    {
        DESCRIBE_NODE,
        DESCRIBE_CLIENT_INSTANCES,
        TAIL_CLIENT_METRICS,
        DESCRIBE_CLEANER,
        DESCRIBE_QUOTA_USAGE,
    }
)
"""Own requests that change nothing."""

CHANGING_KEYS = frozenset({DRAIN_BROKER, CLEAN_LOGS})
"""Own requests that change state: each is registered by way of `OwnRequests.guarded`."""

ANY, LOOPBACK = "any", "loopback"

Q = TypeVar("Q", bound=Message)


class OwnRequests:
    """The rule of one broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def guarded(
        self,
        handler: Callable[[RequestContext, Q], HandlerResult],
        refused: Callable[[RefusedError], Message],
    ) -> Callable[[RequestContext, Q], HandlerResult]:
        """Return the handler behind the rule; `refused` makes the answer to who may not.

        Where the request has permissions, its gate has let it through.
        """

        def handle(context: RequestContext, request: Q) -> HandlerResult:
            if context.permissions is None:
                try:
                    self.check(context.peer)
                except RefusedError as refusal:
                    return refused(refusal)
            return handler(context, request)

        return handle

    def check(self, peer: Peer) -> None:
        """Refuse a client that may not change state.  Raises CLUSTER_AUTHORIZATION_FAILED."""
        allowed = self._config.admin_requests
        if allowed == ANY or (allowed == LOOPBACK and is_this_machine(peer)):
            return
        remedy = (
            "ask from the broker's own machine, or set ottla.admin.requests=any in its file"
            if allowed == LOOPBACK
            else "set ottla.admin.requests=loopback or any in its file"
        )
        raise RefusedError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"broker {self._config.node_id} does not take requests that change its state from "
            f"{peer.peer_host} (ottla.admin.requests={allowed}); {remedy}",
        )

    def warning(self) -> str | None:
        """Return what an operator is told at start; None where only this machine can connect."""
        if self._config.authorizer.is_on:
            return None
        asking = self._config.sasl.listeners
        open_ones = [each for each in self._config.listeners if each.name not in asking]
        if all(is_loopback(endpoint.host) for endpoint in open_ones):
            return None
        allowed = self._config.admin_requests
        changing = {
            ANY: "every client may also send those that change state",
            LOOPBACK: "those that change state are taken from this machine alone",
        }.get(allowed, "those that change state are taken from nobody")
        names = ", ".join(endpoint.name for endpoint in open_ones)
        where = f"clients of {names}" if asking else "clients"
        return (
            f"{where} are neither authenticated nor authorised: every client may send Kafka's "
            "requests and those of Ottla's own that read; "
            f"{changing} (ottla.admin.requests={allowed})"
        )


def is_this_machine(peer: Peer) -> bool:
    """Return whether a client connected from the machine that the broker runs on.

    That is by a loopback address, or from the very address that it connected to.
    """
    return is_loopback(peer.peer_host) or (
        bool(peer.peer_host) and peer.peer_host == peer.local_host
    )
