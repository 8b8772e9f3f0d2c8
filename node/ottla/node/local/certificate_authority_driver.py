"""Private certificate authority, used by `ottla certificates`, local clusters, fault injection and
tests.

Keys are P-256. The certificate of a node contains the node's id (`urn:ottla:node:ID`), so only that
node can use it. An authority has one purpose, because every holder of a certificate that nodes
trust may join the cluster. The package cryptography is required, which the extra `secure` installs.
"""

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ottla.model.errors import ConfigError
from ottla.model.values import frozen
from ottla.node.local.private_files_driver import write_private
from ottla.rpc.caller import NODE_URI

CA_DAYS = 3_650
CERTIFICATE_DAYS = 824
"""Validity of a certificate in days after its issue. The validity also includes one day before the
issue (`BACKDATED`). Some clients (macOS) reject certificates whose validity exceeds 825 days."""

BACKDATED = timedelta(days=1)
"""Time by which the start of a certificate's validity precedes its issue, so that machines whose
clocks are slow accept the certificate. Fault injection tests set clocks back on purpose."""

CA_FILE, CA_KEY_FILE = "ca.pem", "ca-key.pem"
FOR_NODES, FOR_USERS = "nodes", "users"
"""Purposes of certificate authorities. The purpose is the organizational unit in the authority's
subject; an authority without a purpose is for nodes."""


@frozen(kw_only=True)
class IssuedCertificate:
    """A private key and its certificate, both in PEM."""

    key: str
    certificate: str

    def write(self, path: Path, *, like: os.stat_result | None = None) -> None:
        """Write the key and the certificate to one file (`ssl.keystore.location`) that only its
        owner may read. `like` is the status of the replaced file; the new file gets the same owner
        and mode."""
        write_private(path, self.key + self.certificate, like=like)


class CertificateAuthority:
    """Certificate authority with its own root certificate."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def make(cls, name: str, purpose: str | None = None) -> "CertificateAuthority":
        """Return a new certificate authority, with a new key and root certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if purpose is not None:
            attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, purpose))
        subject = x509.Name(attributes)
        builder = (
            _builder(subject, subject, key.public_key(), timedelta(days=CA_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(is_ca=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
        )
        return cls(key, builder.sign(key, hashes.SHA256()))

    @classmethod
    def opened(cls, directory: Path, name: str) -> "CertificateAuthority":
        """Return the certificate authority that is stored in a directory. If the directory has no
        authority, one is created."""
        certificate, key = directory / CA_FILE, directory / CA_KEY_FILE
        if certificate.exists() and key.exists():
            loaded = serialization.load_pem_private_key(key.read_bytes(), None)
            assert isinstance(loaded, ec.EllipticCurvePrivateKey)
            return cls(loaded, x509.load_pem_x509_certificate(certificate.read_bytes()))
        made = cls.make(name)
        made.write(directory)
        return made

    @classmethod
    def read(cls, directory: Path) -> "CertificateAuthority":
        """Return the certificate authority that is stored in a directory. Raises ConfigError if the
        directory has no usable authority."""
        try:
            key = serialization.load_pem_private_key((directory / CA_KEY_FILE).read_bytes(), None)
            certificate = x509.load_pem_x509_certificate((directory / CA_FILE).read_bytes())
        except OSError as error:
            reason = f"{error.filename} cannot be read ({error.strerror})"
            raise ConfigError(
                "--ca", f"{reason}; 'ottla certificates ca DIR' makes an authority"
            ) from None
        except (ValueError, TypeError) as error:
            raise ConfigError(
                "--ca", f"{directory} has a key or certificate that cannot be used ({error})"
            ) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigError("--ca", f"{directory / CA_KEY_FILE} is no key of an elliptic curve")
        if key.public_key() != certificate.public_key():
            raise ConfigError("--ca", f"{directory}: its key and its certificate do not match")
        return cls(key, certificate)

    def write(self, directory: Path) -> None:
        """Store the certificate authority in a directory. Only the owner may read its key."""
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(directory / CA_KEY_FILE, _key_pem(self._key))
        (directory / CA_FILE).write_text(self.certificate)

    @property
    def purpose(self) -> str:
        """Purpose of the certificate authority: FOR_NODES or FOR_USERS."""
        units = self._certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
        return FOR_USERS if any(one.value == FOR_USERS for one in units) else FOR_NODES

    @property
    def certificate(self) -> str:
        """Root certificate in PEM, for every machine that has to trust the authority."""
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(
        self,
        name: str,
        hosts: Iterable[str] = (),
        *,
        node_id: int | None = None,
        node_ids: Iterable[int] = (),
        valid_from: datetime | None = None,
        valid_for: timedelta = timedelta(days=CERTIFICATE_DAYS),
    ) -> IssuedCertificate:
        """Issue and return a certificate that is valid for `hosts` (names and addresses).

        The certificate is for one node if `node_id` is set, or for several nodes on one machine if
        `node_ids` is set. Otherwise it is for a client.
        """
        return self._sign(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
            _alternative_names(hosts, [*node_ids] if node_id is None else [node_id]),
            valid_from=valid_from,
            valid_for=valid_for,
        )

    def renew(
        self, certificate: str, *, valid_for: timedelta = timedelta(days=CERTIFICATE_DAYS)
    ) -> IssuedCertificate:
        """Issue a certificate with a new key, and the subject and names of a certificate that this
        authority has issued. A running node accepts a new certificate only if its subject and names
        are unchanged.

        Raises ConfigError if another authority has issued `certificate`.
        """
        old = _read_certificate(certificate)
        try:
            old.verify_directly_issued_by(self._certificate)
        except (ValueError, TypeError, InvalidSignature):
            raise ConfigError("FILE", "its certificate is of another authority") from None
        names = [
            name
            for extension in old.extensions
            if isinstance(extension.value, x509.SubjectAlternativeName)
            for name in extension.value
        ]
        return self._sign(old.subject, names, valid_from=None, valid_for=valid_for)

    def _sign(
        self,
        subject: x509.Name,
        names: Iterable[x509.GeneralName],
        *,
        valid_from: datetime | None,
        valid_for: timedelta,
    ) -> IssuedCertificate:
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if self.purpose == FOR_NODES:
            usages.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
        builder = (
            _builder(subject, self._certificate.subject, key.public_key(), valid_for, valid_from)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(is_ca=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if names := list(names):
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        return IssuedCertificate(
            key=_key_pem(key),
            certificate=signed.public_bytes(serialization.Encoding.PEM).decode(),
        )


def ends_at(certificate: str) -> datetime:
    """Return the time at which the first certificate in a PEM text expires, with its time zone.
    Raises ConfigError if the text contains no certificate."""
    return _read_certificate(certificate).not_valid_after_utc


def _read_certificate(text: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(text.encode())
    except ValueError as error:
        raise ConfigError("FILE", f"has no certificate that can be read ({error})") from None


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    valid_for: timedelta,
    valid_from: datetime | None = None,
) -> x509.CertificateBuilder:
    begins = valid_from or datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins - BACKDATED)
        .not_valid_after(begins + valid_for)
    )


def _usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_names(hosts: Iterable[str], node_ids: Iterable[int]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            names.append(x509.IPAddress(ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    names += [x509.UniformResourceIdentifier(f"{NODE_URI}{node_id}") for node_id in node_ids]
    return names


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
