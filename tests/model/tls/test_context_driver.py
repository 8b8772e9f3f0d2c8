"""TLS contexts made of PEM files and texts; unusable ones are refused in one sentence."""

import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives import serialization

from ottla.model.errors import ConfigError
from ottla.model.settings.security.tls import NONE, REQUESTED, REQUIRED, TlsConfig
from ottla.model.tls.certificate import pem_blocks
from ottla.model.tls.context_driver import client_context, read_material, server_context

if TYPE_CHECKING:
    from tests.conftest import CertificateAuthority

KEYSTORE = "ssl.keystore.location"


def met(server: TlsConfig, client: TlsConfig, host: str = "localhost") -> ssl.SSLObject:
    """Return the server's end of a handshake in memory. Raises ssl.SSLError of the refusing end."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client_context(client).wrap_bio(to_client, to_server, server_hostname=host),
        server_context(server).wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    # In TLS 1.3 a client learns only by reading whether it is welcome.
    ends[1].write(b"hello")
    assert ends[0].read(5) == b"hello"
    return ends[1]


def test_a_server_and_a_client_meet_by_files(authority: "CertificateAuthority") -> None:
    server = TlsConfig(certificate_location=str(authority.issue()))
    client = TlsConfig(trust_location=str(authority.file))
    end = met(server, client)
    assert end.version() == "TLSv1.3"
    assert end.compression() is None
    assert met(server, replace(client, versions=("TLSv1.2",))).version() == "TLSv1.2"
    suite = replace(server, versions=("TLSv1.2",), ciphers="ECDHE-ECDSA-AES256-GCM-SHA384")
    found = met(suite, client).cipher()
    assert found is not None
    assert found[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"


def test_certificates_may_be_texts_and_the_key_encrypted(authority: "CertificateAuthority") -> None:
    text = authority.issue().read_text()
    key = next(block for label, block in pem_blocks(text) if label.endswith("PRIVATE KEY"))
    encrypted = encrypted_key(key, b"hush")
    server = TlsConfig(certificate_chain=text, key=encrypted, key_password="hush")
    met(server, TlsConfig(trusted_certificates=authority.file.read_text()))
    with pytest.raises(ConfigError, match=r"^ssl\.key\.password: does not open the private key$"):
        server_context(replace(server, key_password="wrong"))
    with pytest.raises(ConfigError, match=r"^ssl\.keystore\.key: .* set ssl\.key\.password$"):
        server_context(replace(server, key_password=None))
    assert "PRIVATE" not in repr(read_material(server))


def encrypted_key(key: str, password: bytes) -> str:
    return (
        serialization.load_pem_private_key(key.encode(), None)
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password),
        )
        .decode()
    )


def test_a_server_asks_for_certificates_as_it_is_set(
    authority: "CertificateAuthority", new_authority: Callable[[str], "CertificateAuthority"]
) -> None:
    server = TlsConfig(
        certificate_location=str(authority.issue()), trust_location=str(authority.file)
    )
    bare = TlsConfig(trust_location=str(authority.file))
    known = replace(bare, certificate_location=str(authority.issue("c", common_name="me")))
    foreign = replace(bare, certificate_location=str(new_authority("other").issue("c")))
    for asked, welcome in ((NONE, [bare, known, foreign]), (REQUESTED, [bare, known])):
        for client in welcome:
            met(replace(server, client_auth=asked), client)
    strict = replace(server, client_auth=REQUIRED)
    assert met(strict, known).getpeercert(True) is not None
    for client in (bare, foreign):
        with pytest.raises(ssl.SSLError):
            met(strict, client)
    with pytest.raises(ssl.SSLError):
        met(replace(server, client_auth=REQUESTED), foreign)


def test_a_client_checks_who_the_server_is(
    authority: "CertificateAuthority", new_authority: Callable[[str], "CertificateAuthority"]
) -> None:
    server = TlsConfig(certificate_location=str(authority.issue("a.example")))
    client = TlsConfig(trust_location=str(authority.file))
    met(server, client, "a.example")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        met(server, client, "b.example")
    met(server, replace(client, checks_names=False), "b.example")
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        met(server, TlsConfig(trust_location=str(new_authority("other").file)), "a.example")
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        met(server, TlsConfig(), "a.example")
    # As in Java, a certificate that is trusted itself needs no CA.
    leaf = TlsConfig(trust_location=server.certificate_location)
    met(server, leaf, "a.example")


def test_what_is_no_longer_or_not_yet_valid_is_said(authority: "CertificateAuthority") -> None:
    now = datetime.now(UTC)
    day = timedelta(days=1)
    for file, words in (
        (authority.issue(starts_in=-3 * day, ends_in=-day), "has expired on"),
        (authority.issue(starts_in=day), "is not valid before"),
    ):
        material = read_material(TlsConfig(certificate_location=str(file)))
        (sentence,) = material.warnings(now)
        assert sentence.startswith("the own certificate, O")
        assert words in sentence
    good = TlsConfig(
        certificate_location=str(authority.issue()), trust_location=str(authority.file)
    )
    assert read_material(good).warnings(now) == []
    trust = read_material(TlsConfig(trust_location=good.trust_location))
    (sentence,) = trust.warnings(datetime(9000, 1, 1, tzinfo=UTC))
    assert sentence.startswith("the trusted certificate O")


def altered(path: Path, change: Callable[[str], str], mode: int = 0o600) -> Path:
    path.write_text(change(path.read_text()))
    path.chmod(mode)
    return path


def without_key(text: str) -> str:
    return "".join(f"{block}\n" for label, block in pem_blocks(text) if label == "CERTIFICATE")


def without_certificate(text: str) -> str:
    return next(block for label, block in pem_blocks(text) if label != "CERTIFICATE")


@pytest.mark.parametrize(
    ("change", "mode", "sentence"),
    [
        (str, 0o644, "which"),
        (without_key, 0o600, "which has no private key in PEM; append it"),
        (without_certificate, 0o600, "which has no certificate in PEM"),
        (lambda text: "", 0o600, "which has no certificate in PEM"),
        (lambda text: "\x30\x81" + text, 0o600, "which has no certificate in PEM"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_cure(
    authority: "CertificateAuthority", change: Callable[[str], str], mode: int, sentence: str
) -> None:
    file = altered(authority.issue(), change, mode)
    if "\x30\x81" in file.read_text():
        file.write_bytes(b"\x30\x82\x0b\x01")
        sentence = "which is not PEM but a key store of Java or OpenSSL; convert it: keytool"
    if mode == 0o644:
        sentence = f"a private key that every user of this machine can read; chmod 640 {file}"
    spellings = {KEYSTORE: f"listener.name.out.{KEYSTORE}"}
    config = TlsConfig(certificate_location=str(file), spellings=spellings)
    with pytest.raises(ConfigError) as caught:
        server_context(config)
    assert str(caught.value).startswith(f"listener.name.out.{KEYSTORE}: is {file}, {sentence}")


def test_a_certificate_that_all_may_read_is_no_secret(authority: "CertificateAuthority") -> None:
    ca = altered(Path(str(authority.issue())), without_key, 0o644)
    client_context(TlsConfig(trust_location=str(ca)))


def test_a_key_of_another_certificate_is_refused(authority: "CertificateAuthority") -> None:
    text, other = authority.issue().read_text(), authority.issue().read_text()
    config = TlsConfig(certificate_chain=without_key(text), key=without_certificate(other))
    with pytest.raises(ConfigError) as caught:
        server_context(config)
    assert str(caught.value).startswith("ssl.keystore.key: is PEM text that has a private key tha")
    assert "PRIVATE" not in str(caught.value)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    config = TlsConfig(trust_location=str(tmp_path / "none.pem"))
    with pytest.raises(ConfigError, match="which cannot be read: No such file or directory"):
        client_context(config)
