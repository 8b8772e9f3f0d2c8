"""A private certificate authority for local clusters, drills and tests.

Keys are P-256.  The certificate of a node contains the node's id (`urn:ottla:node:ID`), so only
that node can use it.  Requires the package cryptography, which the extra `secure` installs.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ottla.model.values import frozen
from ottla.node.local.private_files_driver import write_private
from ottla.rpc.caller import NODE_URI

CA_DAYS = 3_650
CERTIFICATE_DAYS = 824
"""Validity of a certificate in days, not counting the day by which it is backdated.  Some clients
(macOS) reject certificates that are valid for more than 825 days in all."""

BACKDATED = timedelta(days=1)
"""Time by which the start of a certificate's validity precedes its issue.  Machines whose clocks
are slow then accept the certificate; drills set clocks back on purpose."""

CA_FILE, CA_KEY_FILE = "ca.pem", "ca-key.pem"


@frozen(kw_only=True)
class IssuedCertificate:
    """A private key and its certificate, in PEM."""

    key: str
    certificate: str

    def write(self, path: Path) -> None:
        """Write the key and the certificate to one file (`ssl.keystore.location`) that only its
        owner may read."""
        write_private(path, self.key + self.certificate)


class CertificateAuthority:
    """A certificate authority with its own root certificate."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def make(cls, name: str) -> "CertificateAuthority":
        """Create and return a new authority, with a new key and root certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
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
        """Return the authority that is stored in a directory, after creating it if there is
        none."""
        certificate, key = directory / CA_FILE, directory / CA_KEY_FILE
        if certificate.exists() and key.exists():
            loaded = serialization.load_pem_private_key(key.read_bytes(), None)
            assert isinstance(loaded, ec.EllipticCurvePrivateKey)
            return cls(loaded, x509.load_pem_x509_certificate(certificate.read_bytes()))
        made = cls.make(name)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(key, _key_pem(made._key))
        certificate.write_text(made.certificate)
        return made

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
        valid_from: datetime | None = None,
        valid_for: timedelta = timedelta(days=CERTIFICATE_DAYS),
    ) -> IssuedCertificate:
        """Issue and return a certificate that is valid for some hosts (names and addresses).

        The certificate is for a node if `node_id` is given, or else for a client.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            _builder(subject, self._certificate.subject, key.public_key(), valid_for, valid_from)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(is_ca=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
                ),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        names = _alternative_names(hosts, node_id)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        return IssuedCertificate(
            key=_key_pem(key),
            certificate=signed.public_bytes(serialization.Encoding.PEM).decode(),
        )


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


def _alternative_names(hosts: Iterable[str], node_id: int | None) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            names.append(x509.IPAddress(ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    if node_id is not None:
        names.append(x509.UniformResourceIdentifier(f"{NODE_URI}{node_id}"))
    return names


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
