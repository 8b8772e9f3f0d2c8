"""Who is at the other end of a call among nodes, as far as its certificate says.  Pure.

gRPC hands over what TLS has verified as an authentication context.  A certificate may name node ids
itself, as URIs `urn:ottla:node:ID` among its alternative names; else it speaks for the hosts in it.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from ottla.model.acls import ANONYMOUS
from ottla.model.ids import NodeId
from ottla.model.tls.certificate import Certificate, certificates_in, read_certificate
from ottla.model.values import frozen

NODE_URI = "urn:ottla:node:"
"""Before a node id in a certificate's alternative names."""

NODE_DIGITS_MAX = 10
"""Digits of the largest node id, 2**31 - 1."""

CERTIFICATE = "x509_pem_cert"
"""What gRPC calls the certificate of a caller."""

CERTIFICATES_MAX = 1_024
"""Certificates that are kept as they were read: a cluster has one or two a node."""

PRINCIPAL_CHARS_MAX = 1_024
"""Length of a principal.  It is stored with the registration of a broker."""


@frozen(kw_only=True)
class Caller:
    """The process that made a call."""

    host: str = ""
    """Its address, without the port."""
    principal: str = ANONYMOUS
    is_authenticated: bool = False
    """Whether it has shown a certificate."""
    names: frozenset[str] = frozenset()
    """The hosts in its certificate: DNS names in lower case, and addresses."""
    node_ids: frozenset[NodeId] = frozenset()
    """The node ids that its certificate names; none leaves that to its hosts."""

    def speaks_for_host(self, host: str) -> bool:
        """Return whether the certificate is valid for a host (RFC 6125: `*` is one label)."""
        host = host.lower().rstrip(".")
        _, dot, domain = host.partition(".")
        return host in self.names or bool(dot and f"*.{domain}" in self.names)


UNKNOWN_CALLER = Caller()
"""The caller of a connection that is not authenticated."""


def caller_of(
    peer: str, context: Mapping[str, Iterable[bytes]], user_of: Callable[[str], str | None]
) -> Caller:
    """Return the caller of a call.

    `peer` and `context` are gRPC's words for the connection; `user_of` maps the subject of a
    certificate (RFC 2253) to a user's name.  A caller whose subject it maps to none, or whose
    certificate cannot be read, is not authenticated.
    """
    host = host_of(peer)
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
    """Read a certificate that TLS has verified; None where it is in a form that is not known."""
    try:
        return read_certificate(certificates_in(pem.decode("ascii"))[0])
    except (ValueError, IndexError):
        return None


def host_of(peer: str) -> str:
    """Return the host of gRPC's `ipv4:1.2.3.4:5`, `ipv6:%5B::1%5D:5` or `unix:…`."""
    family, _, rest = peer.partition(":")
    if family not in ("ipv4", "ipv6"):
        return ""
    host = rest.rpartition(":")[0]
    return host.removeprefix("%5B").removesuffix("%5D").removeprefix("[").removesuffix("]")
