"""Access control of a console behind a proxy. The proxy signs users in and sends the user's name in
a header.

The header is accepted only from the listed addresses; all other requests are refused. Requests to
the cluster use the console's own login, so users differ only in their roles.
"""

import hmac
from collections import OrderedDict, deque
from collections.abc import Iterable
from http import HTTPStatus
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ottla.console.access.gate import NOTICES_MAX, RenderPage, SignedIn, UserClients
from ottla.console.access.roles import RoleTable
from ottla.model.errors import ConfigError
from ottla.model.visible_text import UNSAFE

USERS_MAX = 1_000
"""Maximum number of users of the proxy whose notices (messages for their next page) are kept."""
NAME_CHARS_MAX = 256
Network = IPv4Network | IPv6Network


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Return the proxy's addresses and networks, from texts such as `10.0.0.7` and `10.0.0.0/8`.
    Raises ConfigError for any other text, and if `texts` is empty."""
    networks = []
    for text in texts:
        try:
            networks.append(ip_network(text))
        except ValueError:
            raise ConfigError(
                "--proxy-address", f"is {text!r}; it must be an IP address or network"
            ) from None
    if not networks:
        raise ConfigError("--proxy-address", "is missing; name the addresses of the proxy")
    return tuple(networks)


class ProxyGate:
    """Access control that reads the user's name from a header of a trusted proxy."""

    def __init__(
        self,
        clients: UserClients,
        roles: RoleTable,
        secret: bytes,
        *,
        header: str,
        networks: tuple[Network, ...],
    ) -> None:
        self._clients = clients
        self._roles = roles
        self._secret = secret
        self._header = header
        self._networks = networks
        self._users: OrderedDict[str, SignedIn] = OrderedDict()

    def attach(self, _render: RenderPage) -> list[BaseRoute]:
        """Return no HTTP routes, because the proxy has the login page."""
        return []

    async def admit(self, request: Request) -> SignedIn | Response:
        """Return the user that the proxy names in the request's header, or a response that refuses
        the request."""
        if request.client is None or not self._is_proxy(request.client.host):
            return _refusal("this address is not the proxy's")
        names = request.headers.getlist(self._header)
        if len(names) != 1 or not names[0] or len(names[0]) > NAME_CHARS_MAX:
            return _refusal(f"the proxy must send one header {self._header} with the user's name")
        user = names[0]
        if UNSAFE.search(user):
            return _refusal(f"the header {self._header} has control characters")
        signed = self._users.pop(user, None) or SignedIn(
            user=user,
            role=self._roles.role_of(user),
            form_secret=hmac.digest(self._secret, user.encode("utf-8", "replace"), "sha256"),
            clients=self._clients,
            notices=deque(maxlen=NOTICES_MAX),
        )
        self._users[user] = signed
        while len(self._users) > USERS_MAX:
            self._users.popitem(last=False)
        return signed

    def _is_proxy(self, host: str) -> bool:
        try:
            address = ip_address(host.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)


def _refusal(reason: str) -> Response:
    return Response(f"{reason}\n", HTTPStatus.FORBIDDEN, media_type="text/plain")
