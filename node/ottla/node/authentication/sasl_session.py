"""SASL authentication of one connection, as in Kafka (KIP-43, KIP-152, KIP-368). Pure.

States: START → HANDSHAKE (after ApiVersions, once) → TOKENS or RAW_TOKENS (after SaslHandshake 1 or
0) → DONE. FAILED is reachable from every state. To renew an expiring session, a new SaslHandshake
leads from DONE to TOKENS. Invariants: NothingIsParsedBeforeItsKeyIsAllowed, NoUserBeforeProof,
FailuresLookAlike.

A failure is answered after a delay, which slows down guessing. An error without a possible response
closes the connection.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from struct import Struct, error
from typing import TypeVar

from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.limits import KIB
from ottla.model.values import frozen
from ottla.node.authentication.mechanism import SaslExchange, SaslMechanism
from ottla.node.authentication.revocations import LiveSessions, credential_name
from ottla.node.network.dispatch import NotServedYetError, Peer
from ottla.node.network.guard import GuardResponse
from ottla.wire.apis import API, API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from ottla.wire.codec import decode_prefix
from ottla.wire.codec_types import Message
from ottla.wire.headers import RequestHeader, decode_request_header
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from ottla.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from ottla.wire.messages.sasl_handshake_response import SaslHandshakeResponse

RECEIVE_BYTES_MAX = 512 * KIB
"""Maximum size in bytes of a client's frame before its login (`sasl.server.max.receive.size`).
Kerberos tickets and signed tokens are the largest frames of ordinary clients."""

ELEMENTS_BYTES_MAX = 1024 * KIB
"""Maximum memory, in bytes, of the decoded array elements of a request that a client sends before
its login."""

LIFETIME_FROM = 1
"""First version of SaslAuthenticate whose response contains the lifetime of the client's
session."""

REAUTHENTICATION_PAUSE_MS = 1_000
"""Milliseconds after a login during which a SaslHandshake is treated as an ordinary request, as in
Kafka."""

RAW_TOKEN_HEADER = RequestHeader(SASL_AUTHENTICATE, 0, None, 0)
"""Request header that stands for the missing header of a raw SASL token, which clients send after
SaslHandshake version 0."""

_API_KEY = Struct(">hh")

M = TypeVar("M", bound=Message)


class SaslState(Enum):
    """State of the SASL authentication of one connection."""

    START = auto()
    HANDSHAKE = auto()
    TOKENS = auto()
    RAW_TOKENS = auto()
    DONE = auto()
    FAILED = auto()


@dataclass(slots=True, kw_only=True)
class SaslCounts:
    """Numbers of logins on one listener, by outcome."""

    successes: int = 0
    successes_without_renewal: int = 0
    """Number of logins by clients whose version cannot renew a session by authenticating again."""
    failures: int = 0
    reauthentications: int = 0
    reauthentication_failures: int = 0
    expired: int = 0


@frozen(kw_only=True)
class SaslRules:
    """Authentication rules of a listener: its SASL mechanisms, limits and delays."""

    mechanisms: Mapping[str, SaslMechanism]
    failure_delay_ms: int = 100
    session_ms_max: Mapping[str, int]
    """Maximum time of a client's session in milliseconds, by SASL mechanism. Mechanisms without an
    entry have no limit."""
    receive_bytes_max: int = RECEIVE_BYTES_MAX
    counts: SaslCounts
    sessions: LiveSessions = field(default_factory=lambda: LiveSessions(is_on=False))
    """Registry of the credentials with which the clients of open connections have logged in."""


class SaslSession:
    """Guard of one connection on a SASL listener: it receives all frames until the client has
    logged in."""

    def __init__(self, rules: SaslRules, peer: Peer) -> None:
        self._rules = rules
        self._peer = peer
        self.state = SaslState.START
        self.is_done = False
        self._mechanism = ""
        self._exchange: SaslExchange | None = None
        self._user: str | None = None
        """User of the connection's first login; None while the client has not logged in."""
        self._authenticated_ms = 0
        self._ends_ms: int | None = None

    @property
    def has_logged_in(self) -> bool:
        """True once the client of the connection has logged in. It stays True while an expiring
        session is renewed."""
        return self._user is not None

    @property
    def frame_bytes_max(self) -> int | None:
        """Maximum frame size in bytes at this stage of the login; None once ordinary requests are
        served."""
        return None if self.state is SaslState.DONE else self._rules.receive_bytes_max

    @property
    def frame_bytes_min(self) -> int | None:
        """Minimum frame size in bytes at this stage of the login: 0 for raw tokens, which may be
        empty. None if the minimum size of a request applies."""
        return 0 if self.state is SaslState.RAW_TOKENS else None

    def on_frame(self, frame: memoryview, now_ms: int) -> GuardResponse | None:
        """Process a frame that the client has sent. Returns the response to send, or None to pass
        the frame to the dispatcher.

        Raises ProtocolError if the connection must be closed at once.
        """
        if self.state is SaslState.RAW_TOKENS:
            return self._on_raw_token(bytes(frame), now_ms)
        try:
            api_key, version = _API_KEY.unpack_from(frame)
        except error:
            raise ProtocolError("the request header ends too early") from None
        match self.state:
            case SaslState.START | SaslState.HANDSHAKE:
                return self._on_first_request(api_key, version, frame, now_ms)
            case SaslState.TOKENS:
                return self._on_token_request(api_key, version, frame, now_ms)
            case SaslState.DONE:
                return self._on_request(api_key, version, frame, now_ms)
        raise ProtocolError("a request after failed authentication")

    # Before the handshake.

    def _on_first_request(
        self, api_key: int, version: int, frame: memoryview, now_ms: int
    ) -> GuardResponse | None:
        if api_key == API_VERSIONS:
            if self.state is SaslState.HANDSHAKE:
                raise ProtocolError("a second ApiVersions before authentication")
            # The dispatcher answers an unknown version, and the client retries with another.
            if API[API_VERSIONS].serves(version):
                self.state = SaslState.HANDSHAKE
            return None
        if api_key == SASL_HANDSHAKE:
            return self._on_handshake(version, frame, now_ms)
        raise ProtocolError(f"api key {api_key} before authentication")

    def _on_handshake(self, version: int, frame: memoryview, now_ms: int) -> GuardResponse:
        header, request = _decoded(SaslHandshakeRequest, version, frame)
        rules = self._rules
        mechanism = rules.mechanisms.get(request.mechanism)
        names = list(rules.mechanisms)
        if mechanism is None:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return self._failed(
                header, SaslHandshakeResponse(error_code=code, mechanisms=names), now_ms
            )
        if self._user is not None and mechanism.name != self._mechanism:
            code = ErrorCode.ILLEGAL_SASL_STATE
            return self._failed(
                header, SaslHandshakeResponse(error_code=code, mechanisms=names), now_ms
            )
        if not mechanism.is_ready:
            raise NotServedYetError("the users are not known yet")
        self._mechanism = mechanism.name
        self._exchange = mechanism.begin()
        self.state = SaslState.TOKENS if version else SaslState.RAW_TOKENS
        return GuardResponse(header=header, message=SaslHandshakeResponse(mechanisms=names))

    # Tokens.

    def _on_token_request(
        self, api_key: int, version: int, frame: memoryview, now_ms: int
    ) -> GuardResponse:
        illegal = ErrorCode.ILLEGAL_SASL_STATE
        if api_key == SASL_HANDSHAKE:
            header, _ = _decoded(SaslHandshakeRequest, version, frame)
            return self._failed(header, SaslHandshakeResponse(error_code=illegal), now_ms)
        if api_key == API_VERSIONS and API[API_VERSIONS].serves(version):
            header = decode_request_header(frame)
            return self._failed(header, ApiVersionsResponse(error_code=illegal), now_ms)
        if api_key != SASL_AUTHENTICATE:
            raise ProtocolError(f"api key {api_key} during authentication")
        header, request = _decoded(SaslAuthenticateRequest, version, frame)
        try:
            token, lifetime_ms = self._answer_to(
                bytes(request.auth_bytes), now_ms, hears_lifetime=version >= LIFETIME_FROM
            )
        except RefusedError as refusal:
            return self._failed(
                header,
                SaslAuthenticateResponse(error_code=refusal.code, error_message=refusal.message),
                now_ms,
            )
        return GuardResponse(
            header=header,
            message=SaslAuthenticateResponse(
                error_message=None, auth_bytes=token, session_lifetime_ms=lifetime_ms
            ),
        )

    def _on_raw_token(self, token: bytes, now_ms: int) -> GuardResponse:
        try:
            answer, _ = self._answer_to(token, now_ms, hears_lifetime=False)
        except RefusedError:
            return self._failed(RAW_TOKEN_HEADER, None, now_ms)
        return GuardResponse(header=RAW_TOKEN_HEADER, token=answer)

    def _answer_to(self, token: bytes, now_ms: int, *, hears_lifetime: bool) -> tuple[bytes, int]:
        """Pass a client's token to the SASL mechanism. Returns the response to the token and, after
        a successful login, the session lifetime in milliseconds.

        `hears_lifetime` is True if the response has a field for the lifetime. Raises RefusedError
        if the login has failed.
        """
        assert self._exchange is not None
        try:
            reply = self._exchange.respond(token)
        except ProtocolError:
            # One message for every reason, since the failed check would be a hint.
            kind = "authentication" if self._user is None else "re-authentication"
            raise RefusedError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"Authentication failed during {kind} due to invalid credentials with SASL "
                f"mechanism {self._mechanism}",
            ) from None
        if reply.user is None:
            return reply.token, 0
        if self._user not in (None, reply.user):
            raise RefusedError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"Cannot change principals during re-authentication from User:{self._user} to "
                f"User:{reply.user}",
            )
        self._peer.is_token_authenticated = reply.token_id is not None
        self._rules.sessions.note(self._peer, credential_name(self._mechanism, reply))
        return reply.token, self._authenticated(
            reply.user, reply.lifetime_ms, now_ms, hears_lifetime=hears_lifetime
        )

    def _authenticated(
        self, user: str, credential_ms: int | None, now_ms: int, *, hears_lifetime: bool
    ) -> int:
        """Store the authenticated user, and start the session. Returns the session lifetime in
        milliseconds, or 0 for an unlimited session.

        `credential_ms` is the remaining lifetime of the client's credential in milliseconds; None
        if the credential never expires. `hears_lifetime` is True if the response to the client
        contains the session lifetime.
        """
        counts = self._rules.counts
        if self._user is None:
            counts.successes += 1
            counts.successes_without_renewal += not hears_lifetime
        else:
            counts.reauthentications += 1
        self._user = self._peer.user = user
        self._exchange = None
        self._authenticated_ms = now_ms
        self.state = SaslState.DONE
        ends = [
            one
            for one in (credential_ms, self._rules.session_ms_max.get(self._mechanism) or None)
            if one is not None
        ]
        if not ends:
            self._ends_ms = None
            self.is_done = True
            return 0
        lifetime_ms = max(min(ends), 0)
        self._ends_ms = now_ms + lifetime_ms
        # A client of an old version is not informed of the expiry, which still applies, as in
        # Kafka. Otherwise an expired token could be used with an old version.
        return lifetime_ms if hears_lifetime else 0

    # Renewal of a session.

    def _on_request(
        self, api_key: int, version: int, frame: memoryview, now_ms: int
    ) -> GuardResponse | None:
        if (
            api_key == SASL_HANDSHAKE
            and version > 0
            and now_ms - self._authenticated_ms >= REAUTHENTICATION_PAUSE_MS
        ):
            return self._on_handshake(version, frame, now_ms)
        if self._ends_ms is not None and now_ms >= self._ends_ms:
            self._rules.counts.expired += 1
            raise ProtocolError("its session has ended, and it has not authenticated again")
        return None

    def _failed(self, header: RequestHeader, message: Message | None, now_ms: int) -> GuardResponse:
        self.state = SaslState.FAILED
        self._exchange = None
        if self._user is None:
            self._rules.counts.failures += 1
        else:
            self._rules.counts.reauthentication_failures += 1
        return GuardResponse(
            header=header, message=message, closes_at_ms=now_ms + self._rules.failure_delay_ms
        )


def _decoded(kind: type[M], version: int, frame: memoryview) -> tuple[RequestHeader, M]:
    """Decode the header and body of a request that a client may send before its login. Raises
    ProtocolError if the request is malformed."""
    if not API[kind.API_KEY].serves(version):
        raise ProtocolError(f"version {version} of {API[kind.API_KEY].name}")
    header = decode_request_header(frame)
    request, _ = decode_prefix(kind, version, frame, header.body_at, ELEMENTS_BYTES_MAX)
    return header, request
