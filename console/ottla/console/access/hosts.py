"""Host names by which browsers reach the console, and the detection of requests from other sites.
Pure.

This prevents DNS rebinding. In this attack, a web page sends requests to the console through a
browser on the same machine. The attacker's host name then resolves to the console's address, but
the `Host` header still contains the attacker's host name.
"""

from collections.abc import Iterable
from urllib.parse import urlsplit

from ottla.model.settings.endpoints import is_loopback
from ottla.model.values import frozen

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
WILDCARDS = ("0.0.0.0", "::", "")
HOST_CHARS_MAX = 300


@frozen(kw_only=True)
class HostNames:
    """Values of the `Host` header that name the console."""

    exact: frozenset[str]
    """Accepted values of the `Host` header: host names with a port, in lower case."""
    any_port: frozenset[str]
    """Host names that are accepted with any port, because a proxy or a port mapping may change the
    port."""
    has_all: bool = False
    """True if every host name is accepted. This is safe if the console has a login and TLS, because
    an attacker has no certificate for a foreign name."""

    def has(self, host: str) -> bool:
        """Return whether the value of a `Host` header names the console."""
        host = host.lower()
        if not host or len(host) > HOST_CHARS_MAX:
            return False
        return self.has_all or host in self.exact or _without_port(host) in self.any_port

    def is_own_origin(self, origin: str, host: str) -> bool:
        """Return whether the value of an `Origin` header names the console itself. `host` is the
        `Host` header of the same request."""
        try:
            netloc = urlsplit(origin).netloc.lower()
        except ValueError:
            return False
        if not netloc:
            return False
        return netloc == host.lower() or _without_port(netloc) in self.any_port


def host_names(host: str, port: int, names: Iterable[str] = (), *, has_tls: bool) -> HostNames:
    """Return the host names of a console that listens at `host` and `port`. `names` are further
    names by which browsers reach the console."""
    own = [f"[{host}]" if ":" in host else host]
    if is_loopback(host):
        own += LOOPBACK_NAMES
    exact = {f"{name}:{port}" for name in own}
    if port == (443 if has_tls else 80):
        exact |= set(own)
    further = frozenset(name.lower() for name in names)
    return HostNames(
        exact=frozenset(exact), any_port=further, has_all=host in WILDCARDS and not further
    )


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
