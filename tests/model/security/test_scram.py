"""SCRAM: the vectors of the RFCs, escaped names, and server messages that a client refuses."""

from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import OttlaError, ProtocolError, RefusedError
from ottla.model.security.scram import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramClient,
    ScramCredential,
    ScramHash,
    escape,
    parse_client_final,
    parse_client_first,
    unescape,
)

SCRAM_SHA_1 = ScramHash("SCRAM-SHA-1", 0, "sha1")

RFC_5802 = (
    SCRAM_SHA_1,
    "fyko+d2lbbFgONRv9qkxdawL",
    "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
    "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
    "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
)
RFC_7677 = (
    SCRAM_SHA_256,
    "rOprNGfwEbeRWgbNEkqO",
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
)


@pytest.mark.parametrize("vector", [RFC_5802, RFC_7677], ids=["RFC 5802", "RFC 7677"])
def test_a_client_says_what_the_rfc_says(vector: tuple[ScramHash, str, str, str, str]) -> None:
    hashing, nonce, server_first, client_final, server_final = vector
    client = ScramClient(hashing, "user", nonce)
    assert client.first == f"n,,n=user,r={nonce}".encode()
    salt, iterations = client.on_server_first(server_first.encode())
    final = client.final(hashing.salted_password("pencil", salt, iterations))
    assert final.decode() == client_final
    client.check_server_final(server_final.encode())


def test_a_credential_is_that_of_the_rfc() -> None:
    # The keys of RFC 7677's user, from which its exchange follows.
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    found = ScramCredential.of_password(SCRAM_SHA_256, "pencil", salt, 4096)
    assert found.server_key == b64decode("wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=")
    assert found.stored_key == b64decode("WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=")
    assert "pencil" not in repr(found)
    assert str(found.stored_key) not in repr(found)


@pytest.mark.parametrize(
    ("name", "text"),
    [("a,b=c", "a=2Cb=3Dc"), ("=2C", "=3D2C"), ("Zoë", "Zoë"), ("=,=", "=3D=2C=3D")],
)
def test_names_are_escaped(name: str, text: str) -> None:
    assert escape(name) == text
    assert unescape(text) == name


@given(st.text())
def test_every_name_survives_its_escape(name: str) -> None:
    assert unescape(escape(name)) == name


@pytest.mark.parametrize("text", ["a=", "=2", "=2c", "=3d", "=41", "a=b"])
def test_an_escape_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        unescape(text)


@pytest.mark.parametrize(
    ("token", "user", "authorization_id"),
    [
        (b"n,,n=al,r=abc", "al", ""),
        (b"y,,n=al,r=abc", "al", ""),
        (b"n,a=al,n=al,r=abc", "al", "al"),
        (b"n,,n=a=2Cl,r=abc,tokenauth=true", "a,l", ""),
        (b"n,,n=al,r=abc,x=1,y=2", "al", ""),
    ],
)
def test_a_first_message_is_read(token: bytes, user: str, authorization_id: str) -> None:
    first = parse_client_first(token)
    assert (first.user, first.authorization_id, first.nonce) == (user, authorization_id, "abc")


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"n,,",
        b"n,,n=,r=abc",
        b"n,,n=al,r=",
        b"n,,n=al",
        b"n,,r=abc,n=al",
        b"n,,m=ext,n=al,r=abc",
        b"p=tls-unique,,n=al,r=abc",
        b"q,,n=al,r=abc",
        b"n,n=al,r=abc",
        b"n,,n=a=l,r=abc",
        b"n,,n=\xff,r=abc",
        b"n,,n=al,r=a\nb",
    ],
)
def test_what_is_no_first_message_is_refused(token: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_client_first(token)


@pytest.mark.parametrize(
    "token",
    [b"", b"c=biws,r=abc", b"c=biws,p=YQ==", b"c=b!,r=abc,p=YQ==", b"c=biws,r=abc,p=Y", b"\xff"],
)
def test_what_is_no_final_message_is_refused(token: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_client_final(token)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(token: bytes) -> None:
    for parse in (parse_client_first, parse_client_final):
        try:
            parse(token)
        except ProtocolError:
            continue


@pytest.mark.parametrize(
    "server_first",
    [
        "r=other,s=QSXCR+Q6sek8bf92,i=4096",
        "r=abc,s=QSXCR+Q6sek8bf92,i=4096",
        "r=abcdef,s=QSXCR+Q6sek8bf92,i=4095",
        "r=abcdef,s=QSXCR+Q6sek8bf92,i=999999999",
        "r=abcdef,s=QSX!,i=4096",
        "e=other-error",
    ],
)
def test_a_client_does_not_trust_every_server(server_first: str) -> None:
    client = ScramClient(SCRAM_SHA_512, "al", "abc")
    with pytest.raises(OttlaError):
        client.on_server_first(server_first.encode())


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    client = ScramClient(SCRAM_SHA_256, "al", "abc")
    salt, iterations = client.on_server_first(b"r=abcdef,s=QSXCR+Q6sek8bf92,i=4096")
    client.final(SCRAM_SHA_256.salted_password("pw", salt, iterations))
    with pytest.raises(RefusedError):
        client.check_server_final(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
