"""Certificates that OpenSSL and gRPC accept, parsed by each of them."""

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from ottla.node.local.certificate_authority_driver import CertificateAuthority


def test_a_certificate_names_its_hosts_and_its_node() -> None:
    issued = CertificateAuthority.make("otters").issue(
        "broker-4", ["b4.example", "127.0.0.1", "b4.example"], node_id=4
    )
    found = x509.load_pem_x509_certificate(issued.certificate.encode())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(one.value) for one in names] == ["b4.example", "127.0.0.1", "urn:ottla:node:4"]
    assert found.subject.rfc4514_string() == "CN=broker-4"
    assert found.not_valid_before_utc < datetime.now(UTC) < found.not_valid_after_utc


def test_an_expired_certificate_can_be_made_for_drills() -> None:
    issued = CertificateAuthority.make("otters").issue(
        "old", valid_from=datetime.now(UTC) - timedelta(days=2), valid_for=timedelta(days=1)
    )
    found = x509.load_pem_x509_certificate(issued.certificate.encode())
    assert found.not_valid_after_utc < datetime.now(UTC)


def test_a_directory_keeps_its_authority_and_its_secrets(tmp_path: Path) -> None:
    directory = tmp_path / "ca"
    first = CertificateAuthority.opened(directory, "otters")
    again = CertificateAuthority.opened(directory, "others")
    assert again.certificate == first.certificate
    assert stat.S_IMODE((directory / "ca-key.pem").stat().st_mode) == 0o600

    again.issue("broker-1").write(tmp_path / "broker-1.pem")
    assert stat.S_IMODE((tmp_path / "broker-1.pem").stat().st_mode) == 0o600
    context = ssl.create_default_context(cadata=first.certificate)
    context.load_cert_chain(tmp_path / "broker-1.pem")


def test_openssl_trusts_what_it_issued(tmp_path: Path) -> None:
    authority = CertificateAuthority.make("otters")
    authority.issue("server", ["localhost"]).write(tmp_path / "server.pem")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(tmp_path / "server.pem")
    client = ssl.create_default_context(cadata=authority.certificate)
    ways = [ssl.MemoryBIO() for _ in range(2)]
    ends = [
        client.wrap_bio(ways[0], ways[1], server_hostname="localhost"),
        server.wrap_bio(ways[1], ways[0], server_side=True),
    ]
    left = list(ends)
    for _ in range(10):
        for end in list(left):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            left.remove(end)
    assert left == []
