"""Decides which clients may send requests of Ottla's own APIs (keys from 20000). Pure.

Without an authorizer, the decision depends only on the connection. Read-only requests are open to
every client. Requests that change state follow `ottla.admin.requests`: allowed only from this
machine (`loopback`), from `any` client, or from `none`. With an authorizer, a client needs the ACL
operation that `wire/apis` lists for the API, even on this machine.
"""

from collections.abc import Callable
from typing import TypeVar

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.security.acls import AclOperation
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.endpoints import is_loopback
from ottla.node.network.dispatch import Dispatcher, HandlerResult, Peer, RequestContext
from ottla.wire.api import Api
from ottla.wire.apis import API
from ottla.wire.codec_types import Message
from ottla.wire.refusals import refuse

ANY, LOOPBACK = "any", "loopback"

Q = TypeVar("Q", bound=Message)


class OwnRequests:
    """Access rule for Ottla's own APIs, which Kafka does not have. It decides which clients may use
    these APIs on this broker."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def register(
        self,
        dispatcher: Dispatcher,
        api_key: int,
        handler: Callable[[RequestContext, Q], HandlerResult],
    ) -> None:
        """Register the handler of one of Ottla's own APIs. If the API changes state, the access
        rule is checked before the handler."""
        is_open = not changes_state(API[api_key])
        dispatcher.register(api_key, handler if is_open else self.guarded(handler))

    def guarded(
        self, handler: Callable[[RequestContext, Q], HandlerResult]
    ) -> Callable[[RequestContext, Q], HandlerResult]:
        """Return a handler that checks the access rule for Ottla's own APIs before it calls
        `handler`.

        A request that carries permissions is not checked, since the authorizer has checked it
        already.
        """

        def handle(context: RequestContext, request: Q) -> HandlerResult:
            if context.permissions is None:
                try:
                    self.check(context.peer)
                except RefusedError as refusal:
                    return refuse(request, refusal, context.api_version)
            return handler(context, request)

        return handle

    def check(self, peer: Peer) -> None:
        """Raise RefusedError with CLUSTER_AUTHORIZATION_FAILED if the client may not send requests
        of Ottla's own APIs that change state."""
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
        """Return a warning for the broker's startup log: clients without authentication may send
        requests that change state.

        Returns None if there is an authorizer, or if all listeners without authentication are on
        loopback addresses.
        """
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
        }.get(allowed, "those that change state are taken from no client")
        names = ", ".join(endpoint.name for endpoint in open_ones)
        where = f"clients of {names}" if asking else "clients"
        return (
            f"{where} are neither authenticated nor authorised: every client may send Kafka's "
            "requests and those of Ottla's own that read; "
            f"{changing} (ottla.admin.requests={allowed})"
        )


def changes_state(row: Api) -> bool:
    """Return whether one of Ottla's own APIs changes state, which follows from the ACL operation
    that the API requires."""
    return any(need.operation is AclOperation.ALTER for need in row.single_needs)


def is_this_machine(peer: Peer) -> bool:
    """Return whether a client runs on the broker's own machine.

    The result is True if the client connected from a loopback address, or if the addresses of both
    ends of the connection are equal.
    """
    return is_loopback(peer.peer_host) or (
        bool(peer.peer_host) and peer.peer_host == peer.local_host
    )
