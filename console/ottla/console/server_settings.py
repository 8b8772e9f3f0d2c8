"""Settings of the console's server, and checks that they are safe. Pure."""

from collections.abc import Mapping
from enum import Enum
from ipaddress import ip_address

from ottla.console.access.proxy_gate import Network
from ottla.console.access.roles import RoleTable
from ottla.console.page_types import ConsoleConfig, UserRole
from ottla.model.errors import ConfigError
from ottla.model.settings.declare import load
from ottla.model.settings.endpoints import is_loopback
from ottla.model.settings.security.client_security import (
    LOGIN_PROTOCOLS,
    ClientSecurity,
    in_kafkas_keys,
)
from ottla.model.values import frozen

SCRAM = ("SCRAM-SHA-512", "SCRAM-SHA-256")


class AccessKind(Enum):
    """Kind of access control of the console."""

    OPEN = "open"
    """Access without a login. The cluster requires no login either, and the console's address is a
    loopback address."""
    KEY = "key"
    """Access by a key in the address that the console prints. It is required if the console's own
    login has permissions in the cluster."""
    LOGIN = "login"
    """Access by a login: users of the cluster sign in by SCRAM."""
    PROXY = "proxy"
    """Access through a proxy that signs users in."""


@frozen(kw_only=True)
class ServerSettings:
    """Address, certificate, access control and roles of the console's server."""

    host: str
    port: int
    """TCP port of the console, or 0 for any free port."""
    certificate: str | None = None
    """Path of the PEM file with the certificates for HTTPS, or None for HTTP."""
    key: str | None = None
    """Path of the PEM file with the private key for HTTPS, or None for HTTP."""
    names: tuple[str, ...] = ()
    """Host names by which browsers reach the console, in addition to its address."""
    access: AccessKind
    roles: RoleTable
    security: ClientSecurity | None = None
    """Encryption and SASL mechanism of users' connections to the cluster, for AccessKind.LOGIN."""
    proxy_header: str = ""
    proxy_networks: tuple[Network, ...] = ()
    config: ConsoleConfig
    socket: int | None = None
    """File descriptor of a listening socket for the console, or None if the console opens a
    socket."""
    link_key: str = ""
    """Key in the console's address for AccessKind.KEY. If it is empty, the console creates a
    key."""

    @property
    def has_tls(self) -> bool:
        """True if the console serves HTTPS."""
        return self.certificate is not None


def access_kind(
    *, wants_login: bool, proxy_header: str, host: str, own_login: Mapping[str, str]
) -> AccessKind:
    """Return the kind of access control of a console. `own_login` has the console's own login
    settings. Raises ConfigError if the arguments contradict each other."""
    if proxy_header:
        if wants_login:
            raise ConfigError("--login", "excludes --proxy-header; give one of them")
        return AccessKind.PROXY
    if wants_login or not is_loopback(host):
        return AccessKind.LOGIN
    return AccessKind.KEY if own_login else AccessKind.OPEN


def check_address(kind: AccessKind, host: str, *, has_tls: bool) -> None:
    """Raise ConfigError if passwords or cookies could be read on the network, or if the console's
    address does not belong to this machine."""
    if host != "localhost":
        try:
            ip_address(host.partition("%")[0])
        except ValueError:
            raise ConfigError(
                "--listen", f"is {host!r}; it must be an IP address, or localhost"
            ) from None
    if not has_tls and not is_loopback(host):
        reason = "which browsers reach over the network; --tls-certificate FILE is needed"
        if kind is AccessKind.PROXY:
            reason += ", also between the proxy and the console"
        raise ConfigError("--listen", f"is {host}, {reason}")


def user_security(texts: Mapping[str, str]) -> ClientSecurity:
    """Return the encryption and SASL mechanism of users' logins to the cluster. `texts` contains
    the console's own settings under Kafka's keys. Raises ConfigError if these settings connect to a
    listener without a login.
    """
    kept = {
        key: text
        for key, text in in_kafkas_keys(texts).items()
        if not key.startswith("sasl.") or key == "sasl.mechanism"
    }
    if kept.get("security.protocol") not in LOGIN_PROTOCOLS:
        raise ConfigError(
            "--login",
            "needs a listener with logins: set security.protocol to "
            f"{' or '.join(LOGIN_PROTOCOLS)} in the file of --command-config",
        )
    if kept.get("sasl.mechanism") not in SCRAM:
        kept["sasl.mechanism"] = SCRAM[0]
    security, unknown = load(ClientSecurity, kept)
    if unknown:
        raise ConfigError(sorted(unknown)[0], "is no setting of a client's login")
    return security


def default_role(kind: AccessKind) -> UserRole:
    """Return the default value of --default-role, the role of users without a role. It is admin for
    a console without a login, because the user has the permissions of the command line anyway.
    Otherwise, it is viewer."""
    return UserRole.VIEWER if kind in (AccessKind.LOGIN, AccessKind.PROXY) else UserRole.ADMIN
