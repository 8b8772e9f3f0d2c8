"""Certificates for simulated clusters. They have the same bytes in every run, so TLS records have
the same length in every run.

Keys are Ed25519 and derived from names, so that no length in a certificate or handshake is random.
OpenSSL uses the machine's own clock, not the simulated one, so the validity of certificates covers
both. Requires the package cryptography (the extra `secure`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

VALID_FROM = datetime(2020, 1, 1, tzinfo=UTC)
VALID_UNTIL = datetime(2120, 1, 1, tzinfo=UTC)
EXPIRED = datetime(2021, 1, 1, tzinfo=UTC)

SERIAL_BASE = 1 << 20
"""First serial number of certificates. It is so high that all serial numbers have the same
length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldCertificate:
    """A certificate of a simulated cluster and its private key, in PEM form."""

    chain: str
    key: str


class WorldAuthority:
    """A certificate authority (CA) that derives the keys of certificates from the names of their
    holders."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._key = _key_of(f"ca/{name}")
        self._subject = _subject(name)
        signed = (
            self._builder(self._subject, self._key, 1)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, None)
        )
        self.certificate = signed.public_bytes(serialization.Encoding.PEM).decode()
        """Certificate of this certificate authority (CA) in PEM form."""

    def issue(
        self,
        name: str,
        hosts: Sequence[str] = (),
        *,
        generation: int = 1,
        is_expired: bool = False,
    ) -> WorldCertificate:
        """Issue a certificate with the name `name` for `hosts`, and return it. Each generation has
        its own key and serial number."""
        key = _key_of(f"{self._name}/{name}/{generation}")
        until = EXPIRED if is_expired else VALID_UNTIL
        builder = self._builder(_subject(name), key, generation, until)
        if hosts:
            names = [x509.DNSName(host) for host in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = builder.sign(self._key, None)
        return WorldCertificate(
            chain=signed.public_bytes(serialization.Encoding.PEM).decode(),
            key=key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ).decode(),
        )

    def _builder(
        self,
        subject: x509.Name,
        key: Ed25519PrivateKey,
        generation: int,
        until: datetime = VALID_UNTIL,
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(SERIAL_BASE + generation)
            .not_valid_before(VALID_FROM)
            .not_valid_after(until)
        )


def generation_of(certificate: bytes) -> int:
    """Return the generation of a certificate (DER) issued by this module."""
    return x509.load_der_x509_certificate(certificate).serial_number - SERIAL_BASE


def _key_of(name: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(blake2b(name.encode(), digest_size=32).digest())


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
