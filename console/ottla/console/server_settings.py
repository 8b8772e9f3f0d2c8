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
    """Way in which the console controls the access of users."""

    OPEN = "open"
    """Access without a login. The cluster has no login either, and the console's address is a
    loopback address."""
    KEY = "key"
    """Access by a key in the address that the console prints, because the console's own login has
    rights."""
    LOGIN = "login"
    """Access by a login: users of the cluster sign in by SCRAM."""
    PROXY = "proxy"
    """Access through a proxy that signs users in."""


@frozen(kw_only=True)
class ServerSettings:
    """Address, certificate, access control and roles of the console's server."""

    host: str
    port: int
    """TCP port of the console. 0 for a free one."""
    certificate: str | None = None
    """Path of the PEM file with the certificates for HTTPS. None for HTTP."""
    key: str | None = None
    """Path of the PEM file with the private key for HTTPS, or None."""
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
    """File descriptor of a listening socket for the console. None to open one."""
    link_key: str = ""
    """Key in the console's address for AccessKind.KEY. Empty to make one."""

    @property
    def has_tls(self) -> bool:
        """True if the console serves HTTPS."""
        return self.certificate is not None


def access_kind(
    *, wants_login: bool, proxy_header: str, host: str, own_login: Mapping[str, str]
) -> AccessKind:
    """Return the way in which a console controls access. `own_login` has the console's own
    login settings. Raises ConfigError if two ways exclude each other."""
    if proxy_header:
        if wants_login:
            raise ConfigError("--login", "excludes --proxy-header; give one of them")
        return AccessKind.PROXY
    if wants_login or not is_loopback(host):
        return AccessKind.LOGIN
    return AccessKind.KEY if own_login else AccessKind.OPEN


def check_address(kind: AccessKind, host: str, *, has_tls: bool) -> None:
    """Raise ConfigError if passwords or cookies could be read on the network, or if the console's
    address is not one of this machine's."""
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
    """Return the encryption and SASL mechanism of users' logins to the cluster, from the console's
    own settings in Kafka's keys. Raises ConfigError if these connect to a listener without a login.
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
    """Return the default of --default-role, the role of users that have none. It is admin for a
    console without a login, because its reader has the rights of the command line anyway, and
    viewer otherwise."""
    return UserRole.VIEWER if kind in (AccessKind.LOGIN, AccessKind.PROXY) else UserRole.ADMIN
