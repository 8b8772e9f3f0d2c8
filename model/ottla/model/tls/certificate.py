"""Contents of an X.509 certificate: subject, host names, validity period.

Pure. The module reads DER data of certificates that OpenSSL has verified, and of the node's own
certificate. It does not check signatures. Names have the form of Java's `X500Principal.getName()`
(RFC 2253), because Kafka's principals and mapping rules use that form.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from ipaddress import ip_address
from typing import NamedTuple

from ottla.model.values import frozen

CERTIFICATE_BYTES_MAX = 64 * 1024
"""Maximum size of a certificate, in bytes. OpenSSL accepts certificate chains of at most 100 KiB
from a client."""

SEQUENCE = 0x30
SET = 0x31
OBJECT_ID = 0x06
OCTET_STRING = 0x04
UTC_TIME = 0x17
GENERALIZED_TIME = 0x18
VERSION = 0xA0
EXTENSIONS = 0xA3
TEXT_TAGS = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""DER tags of text values: UTF8String, PrintableString, T61String, IA5String, GeneralString,
BMPString."""

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""Keywords of RFC 2253, such as CN, by the object id of the attribute type. Names show other
attribute types by their object id."""

SUBJECT_ALTERNATIVE_NAMES = "2.5.29.17"
MAIL_NAME, DNS_NAME, URI_NAME, IP_NAME = 0x81, 0x82, 0x86, 0x87
KINDS = {MAIL_NAME: "email", DNS_NAME: "DNS", URI_NAME: "URI"}
ESCAPED = ',=+<>#;"\\'

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s.*?-----END \1-----", re.DOTALL)
CERTIFICATE_LABELS = ("CERTIFICATE", "X509 CERTIFICATE")


class Element(NamedTuple):
    """DER element: its tag, the range of its content, and its start, as byte offsets."""

    tag: int
    begin: int
    content: int
    end: int


@frozen
class Certificate:
    """A certificate's subject, issuer, names, and validity period."""

    subject: str
    """The subject's distinguished name, in the form of RFC 2253."""
    issuer: str
    names: tuple[str, ...]
    """The subject alternative names, each as `DNS:host`, `IP:address`, `URI:…`, `email:…`."""
    not_before: datetime
    not_after: datetime
    fingerprint: str
    """SHA-256 fingerprint of the certificate, in hexadecimal digits."""

    def problem_at(self, now: datetime) -> str | None:
        """Return the reason why the certificate is not valid at a time, or None if it is valid."""
        if now < self.not_before:
            return f"is not valid before {self.not_before:%Y-%m-%d %H:%M} UTC"
        if now > self.not_after:
            return f"has expired on {self.not_after:%Y-%m-%d %H:%M} UTC"
        return None


def read_certificate(der: bytes) -> Certificate:
    """Decode a certificate in DER. Raises ValueError if the bytes are not a certificate."""
    if len(der) > CERTIFICATE_BYTES_MAX:
        raise ValueError("a certificate of more than 64 KiB")
    try:
        return _read(der)
    except (IndexError, OverflowError) as error:
        raise ValueError("no certificate") from error


def pem_blocks(text: str) -> list[tuple[str, str]]:
    """Return the PEM blocks in a text, each with its label, such as CERTIFICATE."""
    return [(found[1], found[0]) for found in _BLOCK.finditer(text)]


def certificates_in(text: str) -> list[bytes]:
    """Return the certificates in a PEM text, each in DER. Raises ValueError if one cannot be
    decoded."""
    return [der_of(block) for label, block in pem_blocks(text) if label in CERTIFICATE_LABELS]


def der_of(block: str) -> bytes:
    """Return the bytes that a PEM block without headers encodes. Raises ValueError if the block is
    damaged."""
    body = "".join(block.splitlines()[1:-1])
    try:
        return base64.b64decode("".join(body.split()), validate=True)
    except binascii.Error as error:
        raise ValueError("damaged PEM") from error


def subject_of(der: bytes) -> str:
    """Return the distinguished name of a certificate's subject. Raises ValueError if the
    certificate is invalid."""
    return read_certificate(der).subject


def _read(der: bytes) -> Certificate:
    whole = _element(der, 0, len(der), SEQUENCE)
    signed = _element(der, whole.content, whole.end, SEQUENCE)
    parts = list(_elements(der, signed))
    if parts and parts[0].tag == VERSION:
        parts.pop(0)
    _, _, issuer, validity, subject, _, *rest = parts
    not_before, not_after = (_time(der, part) for part in _elements(der, validity))
    names: list[str] = []
    for part in rest:
        if part.tag == EXTENSIONS:
            names += _alternative_names(der, part)
    return Certificate(
        subject=_distinguished_name(der, subject),
        issuer=_distinguished_name(der, issuer),
        names=tuple(names),
        not_before=not_before,
        not_after=not_after,
        fingerprint=sha256(der).hexdigest(),
    )


def _element(der: bytes, begin: int, limit: int, tag: int | None = None) -> Element:
    """Return the DER element at an offset. Raises ValueError if it is truncated or has another
    tag."""
    found, size, content = der[begin], der[begin + 1], begin + 2
    if size >= 0x80:
        size_bytes = size & 0x7F
        if not 1 <= size_bytes <= 3:
            raise ValueError("a length that DER does not have")
        size = int.from_bytes(der[content : content + size_bytes], "big")
        content += size_bytes
    if content + size > limit or (tag is not None and tag != found):
        raise ValueError("no certificate")
    return Element(found, begin, content, content + size)


def _elements(der: bytes, parent: Element) -> Iterator[Element]:
    at = parent.content
    while at < parent.end:
        found = _element(der, at, parent.end)
        yield found
        at = found.end


def _distinguished_name(der: bytes, name: Element) -> str:
    """Return a name in RFC 2253's form, which starts with the most specific component."""
    parts = [
        "+".join(_attribute(der, one) for one in _elements(der, part))
        for part in _elements(der, name)
    ]
    return ",".join(reversed(parts))


def _attribute(der: bytes, attribute: Element) -> str:
    kind, value = _elements(der, attribute)
    oid = _object_id(der, kind)
    keyword = KEYWORDS.get(oid)
    if keyword is None or value.tag not in TEXT_TAGS:
        return f"{keyword or oid}=#{der[value.begin : value.end].hex()}"
    return f"{keyword}={_escaped(der[value.content : value.end].decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    """Return a value of a distinguished name, escaped in Java's form."""
    inner = text.strip(" \r")
    if not inner:
        return "".join(f"\\{sign}" for sign in text)
    begin = text.index(inner)
    end = begin + len(inner)
    return (
        "".join(f"\\{sign}" for sign in text[:begin])
        + "".join(_escaped_sign(sign) for sign in inner)
        + "".join(f"\\{sign}" for sign in text[end:])
    )


def _escaped_sign(sign: str) -> str:
    if sign == "\0":
        return "\\00"
    return f"\\{sign}" if sign in ESCAPED else sign


def _object_id(der: bytes, element: Element) -> str:
    """Return an object id in dotted form. Raises ValueError if it is invalid."""
    if element.tag != OBJECT_ID or element.content == element.end:
        raise ValueError("no object id")
    arcs: list[int] = []
    value = 0
    for octet in der[element.content : element.end]:
        value = value << 7 | octet & 0x7F
        if value.bit_length() > 128:
            raise ValueError("an object id beyond measure")
        if octet < 0x80:
            arcs.append(value)
            value = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))


def _time(der: bytes, element: Element) -> datetime:
    text = der[element.content : element.end].decode("ascii")
    if element.tag == UTC_TIME:
        # Two-digit years from 50 belong to the twentieth century (X.509).
        text = ("19" if text >= "5" else "20") + text
    elif element.tag != GENERALIZED_TIME:
        raise ValueError("no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _alternative_names(der: bytes, wrapper: Element) -> list[str]:
    """Return the subject alternative names of a certificate's extensions."""
    found: list[str] = []
    for extension in _elements(der, _element(der, wrapper.content, wrapper.end, SEQUENCE)):
        kind, *flags, value = _elements(der, extension)
        if len(flags) > 1 or value.tag != OCTET_STRING:
            raise ValueError("no extension")
        if _object_id(der, kind) != SUBJECT_ALTERNATIVE_NAMES:
            continue
        for name in _elements(der, _element(der, value.content, value.end, SEQUENCE)):
            content = der[name.content : name.end]
            if name.tag in KINDS:
                found.append(f"{KINDS[name.tag]}:{content.decode('ascii', 'replace')}")
            elif name.tag == IP_NAME and len(content) in (4, 16):
                found.append(f"IP:{ip_address(content)}")
            else:
                found.append(f"other:{der[name.begin : name.end].hex()}")
    return found
