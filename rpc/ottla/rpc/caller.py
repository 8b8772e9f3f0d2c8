"""Identity of the process that calls a node, as verified by its TLS certificate. Pure.

gRPC provides the verified certificate as an authentication context. A certificate may contain node
ids, as URIs `urn:ottla:node:ID` among its alternative names. A certificate without node ids
authenticates the hosts that it contains.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from ottla.model.ids import NodeId
from ottla.model.security.acls import ANONYMOUS
from ottla.model.tls.certificate import Certificate, certificates_in, read_certificate
from ottla.model.values import frozen

NODE_URI = "urn:ottla:node:"
"""Prefix of the URI that contains a node id, among the alternative names of a node's TLS
certificate."""

NODE_DIGITS_MAX = 10
"""Maximum number of digits of a node id in a certificate: the largest id is 2**31 - 1."""

CERTIFICATE = "x509_pem_cert"
"""Key of the caller's certificate in gRPC's authentication context."""

CERTIFICATES_MAX = 1_024
"""Maximum number of parsed certificates of callers in the cache. A cluster has one or two
certificates per node."""

PRINCIPAL_CHARS_MAX = 1_024
"""Maximum length, in characters, of the principal in a caller's certificate. The registration of a
broker stores the principal."""


@frozen(kw_only=True)
class Caller:
    """The process that made a gRPC call, as identified by its connection and certificate."""

    host: str = ""
    """IP address of the caller, without the port. It is empty if the caller has no IP address."""
    principal: str = ANONYMOUS
    is_authenticated: bool = False
    """True if the caller has presented a valid TLS certificate."""
    names: frozenset[str] = frozenset()
    """Hosts for which the caller's certificate is valid: DNS names in lower case, and IP
    addresses."""
    node_ids: frozenset[NodeId] = frozenset()
    """Node ids in the caller's certificate. If the certificate has no node ids, its hosts identify
    the node."""

    def speaks_for_host(self, host: str) -> bool:
        """Return True if the caller's certificate is valid for a host (RFC 6125: `*` matches one
        label)."""
        host = host.lower().rstrip(".")
        _, dot, domain = host.partition(".")
        return host in self.names or bool(dot and f"*.{domain}" in self.names)


UNKNOWN_CALLER = Caller()
"""Caller of a gRPC call on a connection that is not authenticated."""


def caller_of(
    host: str, context: Mapping[str, Iterable[bytes]], user_of: Callable[[str], str | None]
) -> Caller:
    """Return the identity of the process that made a gRPC call.

    `host` is the address of the process, and `context` is gRPC's description of its certificate.
    `user_of` maps the subject of a certificate (RFC 2253) to a user name. A caller is
    unauthenticated if its subject maps to no user, or if its certificate cannot be parsed.
    """
    pem = next(iter(context.get(CERTIFICATE, ())), None)
    certificate = None if pem is None else _certificate(pem)
    user = None if certificate is None else user_of(certificate.subject)
    if certificate is None or user is None:
        return Caller(host=host)
    kinds: dict[str, list[str]] = {}
    for name in certificate.names:
        kind, _, value = name.partition(":")
        kinds.setdefault(kind, []).append(value)
    return Caller(
        host=host,
        principal=f"User:{user}"[:PRINCIPAL_CHARS_MAX],
        is_authenticated=True,
        names=frozenset(one.lower() for one in (*kinds.get("DNS", ()), *kinds.get("IP", ()))),
        node_ids=frozenset(
            NodeId(int(number))
            for uri in kinds.get("URI", ())
            if uri.startswith(NODE_URI)
            and (number := uri.removeprefix(NODE_URI)).isascii()
            and number.isdecimal()
            and len(number) <= NODE_DIGITS_MAX
        ),
    )


@lru_cache(CERTIFICATES_MAX)
def _certificate(pem: bytes) -> Certificate | None:
    """Parse a caller's certificate (PEM) that TLS has verified. Returns None if its format is
    unknown."""
    try:
        return read_certificate(certificates_in(pem.decode("ascii"))[0])
    except (ValueError, IndexError):
        return None


def host_of(peer: str) -> str:
    """Return the host in gRPC's description of a peer: `ipv4:1.2.3.4:5`, `ipv6:%5B::1%5D:5` or
    `unix:…`. Returns an empty string if the peer has no IP address."""
    family, _, rest = peer.partition(":")
    if family not in ("ipv4", "ipv6"):
        return ""
    host = rest.rpartition(":")[0]
    return host.removeprefix("%5B").removesuffix("%5D").removeprefix("[").removesuffix("]")
