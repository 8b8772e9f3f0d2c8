"""Runs the console's web server: hypercorn on trio, with clients of the cluster for its users.

The server closes a connection in the following cases:

- The browser does not send a whole request within `IDLE_S` seconds.
- The browser sends a form too slowly.
- The browser does not read for `UNREAD_MS` milliseconds.
"""

import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import fields, replace
from functools import partial
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve

from ottla.client.admin import Admin, open_admin
from ottla.client.consumer import open_consumer
from ottla.client.producer import open_producer
from ottla.console.access.form_tokens import SECRET_BYTES
from ottla.console.access.gate import AccessGate, OpenGate, UserClients
from ottla.console.access.hosts import HostNames, host_names
from ottla.console.access.key_gate import KeyGate
from ottla.console.access.login_gate import LoginGate, OpenedClients
from ottla.console.access.proxy_gate import ProxyGate
from ottla.console.access.sessions import SessionTable
from ottla.console.app import build_app
from ottla.console.long_actions_driver import LongActions
from ottla.console.pages import PAGES
from ottla.console.seams import ConsoleSeams, write_audit
from ottla.console.server_settings import AccessKind, ServerSettings
from ottla.model.errors import ConfigError
from ottla.model.settings.client import ConsumerConfig, ProducerConfig
from ottla.model.settings.security.client_security import ClientSecurity

LOG = logging.getLogger(__name__)

CLIENT_ID = "ottla-console"
ADMIN_TIMEOUT_S = 20.0
"""Timeout, in seconds, of the console's requests to the cluster. It is shorter than the timeout of
a page, so that the page can name the broker that does not respond."""
IDLE_S = 15
"""Maximum seconds until a browser has sent a whole request."""
READ_S = 3_600
"""Seconds without data from the browser after which the server closes a connection, such as the
connection of a live part."""
UNREAD_MS = 60_000
"""Time, in ms, after which the server closes a connection from which the browser does not read."""
HEADER_BYTES_MAX = 64 * 1024
SWEEP_S = 30.0
"""Interval, in seconds, at which the console closes expired sessions."""
STOP_S = 1.0
"""Maximum time in seconds for which open requests may continue when the console stops."""

BootstrapAddresses = tuple[tuple[str, int], ...]


def secured(config: Any, security: ClientSecurity | None) -> Any:
    """Return the settings of a cluster client with the login and encryption of `security`."""
    if security is None:
        return config
    own = {one.name: getattr(security, one.name) for one in fields(ClientSecurity)}
    return replace(config, **own)


def clients_for(
    admin: Admin, bootstrap: BootstrapAddresses, security: ClientSecurity | None
) -> UserClients:
    """Return the clients of the cluster for one user. If `security` is None, they use the console's
    own login."""

    def further_admin() -> AbstractAsyncContextManager[Admin]:
        return open_admin(
            bootstrap, client_id=CLIENT_ID, timeout_s=ADMIN_TIMEOUT_S, security=security
        )

    def consumer(config: ConsumerConfig | None = None) -> Any:
        found = config or ConsumerConfig(client_id=CLIENT_ID)
        return open_consumer(bootstrap, secured(found, security))

    def producer(config: ProducerConfig | None = None) -> Any:
        found = config or ProducerConfig(client_id=CLIENT_ID)
        return open_producer(bootstrap, secured(found, security))

    return UserClients(
        admin=admin, open_admin=further_admin, open_consumer=consumer, open_producer=producer
    )


class UserConnections:
    """Admin clients of the console's sessions. Each runs in its own task, so that the failure of
    one client does not end the others."""

    def __init__(
        self, nursery: trio.Nursery, bootstrap: BootstrapAddresses, security: ClientSecurity
    ) -> None:
        self._nursery = nursery
        self._bootstrap = bootstrap
        self._security = security

    async def open(self, user: str, password: str) -> OpenedClients:
        """Log in to the cluster as a user, and return clients with the user's permissions. Raises
        RefusedError if the cluster refuses the login."""
        security = replace(
            self._security, sasl_username=user, sasl_password=password, sasl_jaas_config=None
        )
        end = trio.Event()
        admin: Admin = await self._nursery.start(partial(self._hold, security, end))
        return OpenedClients(clients=clients_for(admin, self._bootstrap, security), close=end.set)

    async def _hold(
        self,
        security: ClientSecurity,
        end: trio.Event,
        *,
        task_status: trio.TaskStatus[Admin],
    ) -> None:
        has_started = False
        try:
            async with open_admin(
                self._bootstrap,
                client_id=CLIENT_ID,
                timeout_s=ADMIN_TIMEOUT_S,
                security=security,
            ) as admin:
                await admin.describe_cluster()
                task_status.started(admin)
                has_started = True
                await end.wait()
        except Exception:
            if not has_started:
                raise
            LOG.exception("the clients of a session ended")


async def serve_console(
    bootstrap: BootstrapAddresses,
    settings: ServerSettings,
    report: Callable[[str], None],
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the console until cancelled. Once the server accepts connections, `report` is called
    with the address to open, and `task_status` reports the TCP port."""
    listener = _listener(settings)
    port = int(listener.getsockname()[1])
    names = host_names(settings.host, port, settings.names, has_tls=settings.has_tls)
    seams = ConsoleSeams(
        now_ms=lambda: time.time_ns() // 1_000_000, random_bytes=os.urandom, audit=write_audit
    )
    table = SessionTable(seams.random_bytes)
    async with (
        open_admin(bootstrap, client_id=CLIENT_ID, timeout_s=ADMIN_TIMEOUT_S) as admin,
        trio.open_nursery() as nursery,
    ):
        key = settings.link_key or os.urandom(SECRET_BYTES).hex()
        own = clients_for(admin, bootstrap, None)
        gate = _gate(settings, own, key, table, seams, names, port, nursery, bootstrap)
        app: Any = build_app(
            gate,
            PAGES,
            names=names,
            config=settings.config,
            seams=seams,
            long_actions=LongActions(nursery.start_soon, seams),
            has_tls=settings.has_tls,
        )
        nursery.start_soon(_sweep, table, seams)
        await nursery.start(partial(serve, app, _config(settings, listener), mode="asgi"))
        report(_address(settings, names, port, key))
        task_status.started(port)


def _gate(
    settings: ServerSettings,
    own: UserClients,
    key: str,
    table: SessionTable,
    seams: ConsoleSeams,
    names: HostNames,
    port: int,
    nursery: trio.Nursery,
    bootstrap: BootstrapAddresses,
) -> AccessGate:
    match settings.access:
        case AccessKind.OPEN:
            return OpenGate(own, settings.roles.default, os.urandom(SECRET_BYTES))
        case AccessKind.KEY:
            return KeyGate(
                own,
                settings.roles.default,
                key,
                table,
                seams,
                names,
                port=port,
                has_tls=settings.has_tls,
            )
        case AccessKind.PROXY:
            return ProxyGate(
                own,
                settings.roles,
                os.urandom(SECRET_BYTES),
                header=settings.proxy_header,
                networks=settings.proxy_networks,
            )
    assert settings.security is not None
    connections = UserConnections(nursery, bootstrap, settings.security)
    return LoginGate(
        connections.open,
        settings.roles,
        table,
        seams,
        names,
        port=port,
        has_tls=settings.has_tls,
    )


async def _sweep(table: SessionTable, seams: ConsoleSeams) -> None:
    while True:
        await trio.sleep(SWEEP_S)
        table.end_expired(seams.now_ms())


def _listener(settings: ServerSettings) -> socket.socket:
    if settings.socket is not None:
        return _readable_in_time(socket.socket(fileno=settings.socket))
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        place = f"{settings.host}:{settings.port}"
        raise ConfigError(
            "--port", f"{place} cannot be used: {error.strerror}; --port 0 takes a free one"
        ) from None
    return _readable_in_time(listener)


def _readable_in_time(listener: socket.socket) -> socket.socket:
    """Set a timeout on a listening socket, which accepted connections inherit. Connections from
    which the browser does not read are then closed."""
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MS)
    return listener


def _config(settings: ServerSettings, listener: socket.socket) -> Config:
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.certfile = settings.certificate
    config.keyfile = settings.key
    config.loglevel = "WARNING"
    config.include_server_header = False
    config.keep_alive_timeout = IDLE_S
    config.read_timeout = READ_S
    config.h11_max_incomplete_size = HEADER_BYTES_MAX
    config.ssl_handshake_timeout = IDLE_S
    config.graceful_timeout = STOP_S
    return config


def _address(settings: ServerSettings, names: HostNames, port: int, key: str) -> str:
    scheme = "https" if settings.has_tls else "http"
    host = sorted(names.any_port)[0] if names.any_port else settings.host
    shown = f"[{host}]" if ":" in host else host
    end = f"login?key={key}" if settings.access is AccessKind.KEY else ""
    return f"{scheme}://{shown}:{port}/{end}"
