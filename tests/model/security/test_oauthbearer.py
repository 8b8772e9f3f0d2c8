"""OAUTHBEARER's messages and tokens, as strangers send them."""

import base64

import pytest

from ottla.model.errors import ProtocolError
from ottla.model.security.oauthbearer import (
    TOKEN_CHARS_MAX,
    bearer_message,
    parse_bearer_message,
    parse_token,
)


def test_what_a_client_says_is_read_back() -> None:
    message = parse_bearer_message(bearer_message("a.b.c", {"trace": "x y"}))
    assert message == ("", "a.b.c", {"trace": "x y"})


def test_the_message_that_kafkas_client_sends_is_read() -> None:
    found = parse_bearer_message(b"n,a=al=2Cb,\x01auth=Bearer t.o.k\x01logicalCluster=1\x01\x01")
    assert found == ("al,b", "t.o.k", {"logicalCluster": "1"})


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01\x01\x01",
        b"n,,\x01auth=Bearer t\x01",
        b"n,,auth=Bearer t\x01\x01",
        b"y,,\x01auth=Bearer t\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Basic t\x01\x01",
        b"n,,\x01auth=Bearer t t\x01\x01",
        b"n,,\x01auth=Bearer t\x01auth=Bearer u\x01\x01",
        b"n,,\x01auth=Bearer t\x011=2\x01\x01",
        b"n,,\x01auth=Bearer t\x01a=\x00\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01auth=Bearer " + b"t" * (TOKEN_CHARS_MAX + 1) + b"\x01\x01",
    ],
)
def test_what_is_no_message_is_refused(message: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_bearer_message(message)


def segment(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "a.b.c.d",
        f"{segment(b'[]')}..",
        f"{segment(b'{')}..",
        f"{segment(b'[' * 20_000)}..",
        f"{segment(b'{}')}=..",
        f"{segment(b'{}')}.a.",
        f"{segment(b'{}')}.+/.",
        f"{segment(b'{}')}.{'a' * TOKEN_CHARS_MAX}.",
    ],
)
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(ProtocolError):
        parse_token(token)


def test_a_token_with_an_odd_header_names_no_algorithm_and_no_key() -> None:
    header = segment(b'{"alg":["none"],"kid":7}')
    found = parse_token(f"{header}..")
    assert (found.algorithm, found.key_id) == ("", None)


def test_a_token_that_cannot_be_sent_is_the_callers_error() -> None:
    with pytest.raises(ValueError, match="characters"):
        bearer_message("a\x01b")
