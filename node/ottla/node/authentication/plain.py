"""SASL mechanism PLAIN (RFC 4616): the client sends user and password in one message. Pure.

The users are configured in the broker's own file, as `user_NAME="password"` in `sasl.jaas.config`.
The password itself is sent over the network. Without TLS, PLAIN is only suitable for trusted
networks.
"""

import hmac
from collections.abc import Mapping

from ottla.node.authentication.mechanism import SaslReply, authentication_failed

NO_PASSWORD = b"\0"
"""Password that is compared in place of the password of an unknown user. The check then takes the
same steps as for a known user. No client can send this value."""

TOKEN_PARTS = 3


class PlainMechanism:
    """SASL mechanism PLAIN, with the users and passwords of the broker's own file."""

    name = "PLAIN"
    is_ready = True

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = {user: password.encode() for user, password in passwords.items()}

    def begin(self) -> "PlainMechanism":
        """Return this object, because a PLAIN login has one message and needs no state."""
        return self

    def respond(self, token: bytes) -> SaslReply:
        """Authenticate the client by the single message of a PLAIN login. Returns the reply. Raises
        RefusedError if the user or the password is wrong."""
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise _invalid_token("is no UTF-8") from None
        if len(parts) != TOKEN_PARTS:
            raise _invalid_token(f"expected {TOKEN_PARTS} tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise authentication_failed("Authentication failed: username not specified")
        if not password:
            raise authentication_failed("Authentication failed: password not specified")
        expected = self._passwords.get(user)
        # The check takes the same time for an unknown user and a wrong password.
        is_right = hmac.compare_digest(password.encode(), expected or NO_PASSWORD)
        if expected is None or not is_right:
            raise authentication_failed("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise authentication_failed(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        return SaslReply(b"", user)


def _invalid_token(why: str) -> Exception:
    return authentication_failed(f"Invalid SASL/PLAIN response: {why}")
