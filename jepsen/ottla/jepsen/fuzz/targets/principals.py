"""Fuzz target: certificates of clients, and the rules that map them to users.

An untrusted client chooses the content of its certificate: OpenSSL has verified only the signature.
An operator writes the rules. The resulting user must never be empty, and must always be the same
for the same input. Fixed rules are compared with Python's own regular expressions. These return the
same users, but an attacker can make them slow.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from random import Random

from ottla.jepsen.fuzz.target import FuzzTarget, joined, number_of, numbered, parts_of
from ottla.model.tls.certificate import certificates_in, read_certificate, subject_of
from ottla.model.tls.principal_mapping import NAME_LENGTH_MAX, parse_principal_rules

RULES = (
    "DEFAULT",
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,DEFAULT",
    r"RULE:CN=(?<n>[a-z]+).*/${n}@$0/U, RULE:.*?/\$x/",
    r"RULE:CN=a\+OU=b,O=c/a\/b/,RULE:()/$12/",
)
NAMES = ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "CN=abc", r"CN=a\,b+OU=é,O=\#c,2.5.4.12=#0c0178")
STAFF = r"CN=([^,+\\]{1,99}),OU=staff(?:,.*)?"
OTHERS = r"OU=([a-z]{1,9})-[0-9]{1,5},CN=([^,]{0,99})"
KNOWN = parse_principal_rules(f"RULE:{STAFF}/$1/L,RULE:{OTHERS}/$2@$1/U")
KNOWN_NAMES = ("CN=Al,OU=staff,O=x", "OU=team-7,CN=Bo", "CN=Al\\,OU\\=staff,OU=other", "OU=x-1,CN=")


@cache
def _certificates() -> tuple[bytes, ...]:
    """Return valid DER certificates with names of every text type. Every call returns the same
    certificates."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import NameOID

    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    plain = [x509.NameAttribute(NameOID.COMMON_NAME, "Duke")]
    wide = [
        x509.NameAttribute(NameOID.COUNTRY_NAME, "NL"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, 'Or,g+"<é>;'),
        x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "example"),
        x509.NameAttribute(NameOID.TITLE, " # "),
        x509.NameAttribute(NameOID.USER_ID, "u\\"),
    ]
    names = x509.SubjectAlternativeName(
        [
            x509.DNSName("*.b.example"),
            x509.UniformResourceIdentifier("urn:ottla:node:1"),
            x509.RFC822Name("a@b"),
        ]
    )
    made = []
    for attributes, year in ((plain, 2_040), (wide, 2_060)):
        subject = x509.Name(attributes)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(datetime(2_020, 1, 1, tzinfo=UTC))
            .not_valid_after(datetime(year, 1, 1, tzinfo=UTC))
            .add_extension(names, critical=False)
        )
        made.append(builder.sign(key, None).public_bytes(Encoding.DER))
    return tuple(made)


def _check(data: bytes) -> None:
    which, body = number_of(data, 5), data[2:]
    if which == 0:
        written, name = parts_of(body, 2)
        _map(written.decode("latin-1"), name.decode("utf-8", "replace"))
    elif which == 1:
        _map(RULES[1], subject_of(body))
    elif which == 2:
        read = read_certificate(body)
        assert read.subject == subject_of(body)
        read.problem_at(datetime(2_030, 1, 1, tzinfo=UTC))
        _compare(read.issuer)
    elif which == 3:
        for der in certificates_in(body.decode("latin-1")):
            read_certificate(der)
    else:
        _compare(body.decode("utf-8", "replace"))


def _map(written: str, name: str) -> None:
    rules = parse_principal_rules(written)
    user = rules.user_of(name)
    assert user != ""
    again = parse_principal_rules(str(rules))
    assert again == rules
    assert again.user_of(name) == user


def _compare(name: str) -> None:
    """Map a certificate's name with the fixed rules, and compare the result with the result of
    Python's regular expressions."""
    try:
        user = KNOWN.user_of(name)
    except ValueError as error:
        raise AssertionError("a name is refused") from error
    if len(name) > NAME_LENGTH_MAX:
        return
    if found := re.fullmatch(STAFF, name):
        assert user == found[1].lower()
    elif found := re.fullmatch(OTHERS, name):
        assert user == f"{found[2]}@{found[1]}".upper()
    else:
        assert user is None


def _seeds(random: Random) -> Iterator[bytes]:
    from ssl import DER_cert_to_PEM_cert

    made = _certificates()
    return numbered(
        (
            (joined(rules.encode(), name.encode()) for rules in RULES for name in NAMES),
            made,
            made,
            (DER_cert_to_PEM_cert(der).encode() for der in made),
            (name.encode() for name in KNOWN_NAMES),
        )
    )


PRINCIPALS = FuzzTarget(
    name="principals",
    sentence="clients' certificates, and the rules that map them to users",
    check=_check,
    seeds=_seeds,
    refusals=(ValueError,),
)
