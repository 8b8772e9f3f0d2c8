import pytest

from ottla.model.errors import ErrorCode, RefusedError
from ottla.node.authentication.plain import PlainMechanism

PLAIN = PlainMechanism({"al": "pw", "Zoë": "pässword"})


@pytest.mark.parametrize(
    ("token", "user"),
    [("\0al\0pw", "al"), ("al\0al\0pw", "al"), ("\0Zoë\0pässword", "Zoë")],
)
def test_a_user_with_the_right_password_is_known(token: str, user: str) -> None:
    reply = PLAIN.begin().respond(token.encode())
    assert (reply.token, reply.user, reply.lifetime_ms) == (b"", user, None)


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"al\0pw", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0al\0pw\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\xff\0pw", "Invalid SASL/PLAIN response: is no UTF-8"),
        (b"\0\0pw", "Authentication failed: username not specified"),
        (b"\0al\0", "Authentication failed: password not specified"),
        (b"\0al\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nosuch\0pw", "Authentication failed: Invalid username or password"),
        (
            b"ben\0al\0pw",
            "Authentication failed: Client requested an authorization id that is different from "
            "username",
        ),
    ],
)
def test_anything_else_fails_with_kafkas_words(token: bytes, message: str) -> None:
    with pytest.raises(RefusedError) as caught:
        PLAIN.begin().respond(token)
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert caught.value.message == message
