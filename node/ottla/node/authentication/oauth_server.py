"""Server side of OAUTHBEARER (RFC 7628, KIP-255). Pure.

The signature is verified before any claim of the token is used. The client's error does not contain
the reason for a rejection. Operators find the reason in counters of rejected tokens. A session ends
when its token expires.
"""

from collections import Counter
from collections.abc import Callable

from ottla.model.errors import ProtocolError
from ottla.model.security.jwt_claims import (
    ClaimRules,
    ProvenToken,
    TokenFault,
    TokenFaultError,
    check_claims,
)
from ottla.model.security.oauthbearer import (
    INVALID_TOKEN,
    OAUTHBEARER,
    parse_bearer_message,
    parse_object,
    parse_token,
)
from ottla.node.authentication.jwks import KeySource
from ottla.node.authentication.mechanism import SaslReply, authentication_failed

UNSECURED_ALGORITHM = "none"


class OAuthMechanism:
    """SASL mechanism OAUTHBEARER. `keys`, the source of public keys, is None if unsigned tokens are
    accepted."""

    name = OAUTHBEARER

    def __init__(
        self, keys: KeySource | None, claims: ClaimRules, wall_ms: Callable[[], int]
    ) -> None:
        self._keys = keys
        self._claims = claims
        self._wall_ms = wall_ms
        self.faults: Counter[TokenFault] = Counter()
        """Number of rejected OAuth tokens by reason."""

    @property
    def is_unsecured(self) -> bool:
        """True if this OAUTHBEARER mechanism accepts unsigned tokens."""
        return self._keys is None

    @property
    def is_ready(self) -> bool:
        """True if the public keys that verify tokens have been read."""
        return self._keys is None or self._keys.keys is not None

    def begin(self) -> "OAuthExchange":
        """Begin an OAUTHBEARER login of one client, and return its exchange of messages."""
        return OAuthExchange(self)

    def check(self, token: str) -> tuple[ProvenToken, int]:
        """Verify an OAuth token. Returns the verified token and the milliseconds until it expires.

        Raises TokenFaultError if the token is rejected; its reason is counted.
        """
        now_ms = self._wall_ms()
        try:
            proven = self._proven(token, now_ms)
        except TokenFaultError as error:
            self.faults[error.fault] += 1
            raise
        return proven, max(proven.ends_ms - now_ms, 0)

    def _proven(self, token: str, now_ms: int) -> ProvenToken:
        try:
            signed = parse_token(token)
            if self._keys is not None:
                self._keys.verify(signed)
            elif signed.algorithm != UNSECURED_ALGORITHM or signed.signature:
                raise TokenFaultError(TokenFault.ALGORITHM)
            return check_claims(parse_object(signed.payload), self._claims, now_ms)
        except ProtocolError:
            raise TokenFaultError(TokenFault.MALFORMED) from None


class OAuthExchange:
    """Exchange of an OAUTHBEARER login: the client sends a token, and after an error an
    acknowledgement."""

    def __init__(self, mechanism: OAuthMechanism) -> None:
        self._mechanism = mechanism
        self._has_failed = False

    def respond(self, token: bytes) -> SaslReply:
        """Process the client's OAUTHBEARER message, and return the server's response."""
        if self._has_failed:
            # After a rejected token, any further message of the client, also its acknowledgement,
            # ends the login.
            raise authentication_failed(INVALID_TOKEN.decode())
        message = parse_bearer_message(token)
        try:
            proven, lifetime_ms = self._mechanism.check(message.token)
        except TokenFaultError:
            self._has_failed = True
            return SaslReply(INVALID_TOKEN)
        if message.authorization_id not in ("", proven.user):
            raise authentication_failed(
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name"
            )
        return SaslReply(b"", proven.user, lifetime_ms)
