"""Contents of a certificate, in Java's notation."""

import random
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from ottla.model.tls.certificate import (
    CERTIFICATE_BYTES_MAX,
    certificates_in,
    read_certificate,
    subject_of,
)

if TYPE_CHECKING:
    from tests.conftest import CertificateAuthority

KEY = ec.generate_private_key(ec.SECP256R1())
Attribute = tuple[x509.ObjectIdentifier, str, _ASN1Type]
UTF8 = _ASN1Type.UTF8String
CN, OU, O, C = (  # noqa: E741 - the keywords of names
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.COUNTRY_NAME,
)


def made(
    *parts: list[Attribute],
    names: list[x509.GeneralName] | None = None,
    ends: datetime = datetime(2060, 3, 4, 5, 6, 7, tzinfo=UTC),
) -> bytes:
    name = x509.Name(
        x509.RelativeDistinguishedName(
            [x509.NameAttribute(kind, value, tag, _validate=False) for kind, value, tag in part]
        )
        for part in parts
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(x509.Name([x509.NameAttribute(CN, "ca")]))
        .public_key(KEY.public_key())
        .serial_number(7)
        .not_valid_before(datetime(1999, 1, 2, tzinfo=UTC))
        .not_valid_after(ends)
    )
    if names is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


# Written down from Java 17's X500Principal.getName().
BY_JAVA: list[tuple[list[list[Attribute]], str]] = [
    ([[(C, "DE", UTF8)], [(O, "Org", UTF8)], [(CN, "me", UTF8)]], "CN=me,O=Org,C=DE"),
    ([[(OU, "a", UTF8), (CN, "b", UTF8)]], "CN=b+OU=a"),
    ([[(CN, ' a,b=c+d<e>f#g;h"i\\j ', UTF8)]], 'CN=\\ a\\,b\\=c\\+d\\<e\\>f\\#g\\;h\\"i\\\\j\\ '),
    ([[(CN, "ä\0€", UTF8)]], "CN=ä\\00€"),
    ([[(CN, "   ", UTF8)]], "CN=\\ \\ \\ "),
    ([[(CN, "12", _ASN1Type.NumericString)]], "CN=#12023132"),
    ([[(CN, "b;", _ASN1Type.BMPString)]], "CN=\\00b\\00\\;"),
    ([[(CN, "b", _ASN1Type.UniversalString)]], "CN=#1c0400000062"),
    (
        [[(NameOID.EMAIL_ADDRESS, "a@b", _ASN1Type.IA5String)]],
        "1.2.840.113549.1.9.1=#1603614062",
    ),
    ([[(x509.ObjectIdentifier("2.999.300000.1"), "x", UTF8)]], "2.999.300000.1=#0c0178"),
    (
        [
            [(NameOID.DOMAIN_COMPONENT, "org", UTF8)],
            [(NameOID.USER_ID, "u", UTF8)],
            [(NameOID.STREET_ADDRESS, "s", UTF8)],
            [(NameOID.STATE_OR_PROVINCE_NAME, "t", UTF8)],
            [(NameOID.LOCALITY_NAME, "l", UTF8)],
            [(NameOID.TITLE, "t", UTF8)],
        ],
        "2.5.4.12=#0c0174,L=l,ST=t,STREET=s,UID=u,DC=org",
    ),
    ([], ""),
]


@pytest.mark.parametrize(("parts", "name"), BY_JAVA)
def test_a_subject_is_written_as_java_writes_it(parts: list[list[Attribute]], name: str) -> None:
    assert subject_of(made(*parts)) == name


def test_a_certificate_says_for_which_hosts_it_is_and_when() -> None:
    names: list[x509.GeneralName] = [
        x509.DNSName("a.b"),
        x509.IPAddress(ip_address("10.0.0.1")),
        x509.IPAddress(ip_address("::1")),
        x509.UniformResourceIdentifier("spiffe://x/y"),
        x509.RFC822Name("a@b"),
        x509.RegisteredID(x509.ObjectIdentifier("1.2.3")),
    ]
    found = read_certificate(made([(CN, "me", UTF8)], names=names))
    assert found.names[:5] == ("DNS:a.b", "IP:10.0.0.1", "IP:::1", "URI:spiffe://x/y", "email:a@b")
    assert found.names[5].startswith("other:")
    assert found.issuer == "CN=ca"
    assert found.not_before == datetime(1999, 1, 2, tzinfo=UTC)
    assert found.not_after == datetime(2060, 3, 4, 5, 6, 7, tzinfo=UTC)
    assert found.problem_at(datetime(2026, 1, 1, tzinfo=UTC)) is None
    early, late = found.not_before - timedelta(1), found.not_after + timedelta(1)
    assert found.problem_at(early) == "is not valid before 1999-01-02 00:00 UTC"
    assert found.problem_at(late) == "has expired on 2060-03-04 05:06 UTC"


def test_a_damaged_certificate_is_a_value_error_and_nothing_else() -> None:
    whole = made([(C, "DE", UTF8)], [(CN, "me", UTF8)], names=[x509.DNSName("a.b")])
    rng = random.Random(7)
    for size in range(len(whole)):
        with pytest.raises(ValueError):
            read_certificate(whole[:size])
    for _ in range(20_000):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        with suppress(ValueError):
            read_certificate(bytes(damaged))
    with pytest.raises(ValueError):
        read_certificate(whole + bytes(CERTIFICATE_BYTES_MAX))


def test_certificates_of_a_pem_text_are_found_among_other_blocks(
    authority: "CertificateAuthority",
) -> None:
    file = authority.issue("a.example", common_name="me").read_text()
    text = f"Bag Attributes\n{file}\nsubject=…\n{authority.file.read_text()}"
    first, second = map(read_certificate, certificates_in(text))
    assert first.names == ("DNS:a.example",)
    assert first.subject.startswith("CN=me,")
    assert first.issuer == second.subject
