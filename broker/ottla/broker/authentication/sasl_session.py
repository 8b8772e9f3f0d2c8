"""The authentication of one connection by SASL, as Kafka does it (KIP-43, KIP-152, KIP-368).  Pure.

States: START → HANDSHAKE (after ApiVersions, once) → TOKENS or RAW_TOKENS (after SaslHandshake 1
or 0) → DONE; FAILED from any of them.  A connection whose session ends goes from DONE to TOKENS
with a new SaslHandshake.  Invariants: NothingIsParsedBeforeItsKeyIsAllowed, NoUserBeforeProof,
FailuresLookAlike.

A failure is answered after a delay, so that guessing is slow; what cannot be answered closes the
connection.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from struct import Struct, error
from typing import TypeVar

from ottla.broker.authentication.mechanism import SaslExchange, SaslMechanism
from ottla.broker.authentication.revocations import LiveSessions, credential_name
from ottla.broker.network.dispatch import NotServedYetError, Peer
from ottla.broker.network.guard import GuardAnswer
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.limits import KIB
from ottla.model.values import frozen
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
"""`sasl.server.max.receive.size`: the largest frame before the client is known.  Kerberos tickets
and signed tokens are the largest that honest clients send."""

ELEMENTS_BYTES_MAX = 1024 * KIB
"""What the fields of such a request may take in memory."""

LIFETIME_FROM = 1
"""The first version of SaslAuthenticate whose client hears how long its session lasts."""

REAUTHENTICATION_PAUSE_MS = 1_000
"""A handshake that follows the last login sooner is an ordinary request, as in Kafka."""

RAW_TOKEN_HEADER = RequestHeader(SASL_AUTHENTICATE, 0, 0, None, 0)
"""Stands for the header that a raw token does not have."""

_API_KEY = Struct(">hh")

M = TypeVar("M", bound=Message)


class SaslState(Enum):
    """Where a connection's authentication stands."""

    START = auto()
    HANDSHAKE = auto()
    TOKENS = auto()
    RAW_TOKENS = auto()
    DONE = auto()
    FAILED = auto()


@dataclass(slots=True, kw_only=True)
class SaslCounts:
    """What became of the logins of a listener."""

    successes: int = 0
    successes_without_renewal: int = 0
    """Those of clients too old to renew a session."""
    failures: int = 0
    reauthentications: int = 0
    reauthentication_failures: int = 0
    expired: int = 0


@frozen(kw_only=True)
class SaslRules:
    """What a listener asks of its clients."""

    mechanisms: Mapping[str, SaslMechanism]
    failure_delay_ms: int = 100
    session_ms_max: Mapping[str, int]
    """How long a session lasts by mechanism, where it ends at all."""
    receive_bytes_max: int = RECEIVE_BYTES_MAX
    counts: SaslCounts
    sessions: LiveSessions = field(default_factory=lambda: LiveSessions(is_on=False))
    """Where is noted by what clients have logged in."""


class SaslSession:
    """The guard of one connection of a SASL listener."""

    def __init__(self, rules: SaslRules, peer: Peer) -> None:
        self._rules = rules
        self._peer = peer
        self.state = SaslState.START
        self.is_done = False
        self._mechanism = ""
        self._exchange: SaslExchange | None = None
        self._user: str | None = None
        """Who the client is since its first login."""
        self._authenticated_ms = 0
        self._ends_ms: int | None = None

    @property
    def has_logged_in(self) -> bool:
        """True if the client has logged in once; a session that ends may be renewed."""
        return self._user is not None

    @property
    def frame_bytes_max(self) -> int | None:
        """The largest frame now; None once requests are served."""
        return None if self.state is SaslState.DONE else self._rules.receive_bytes_max

    @property
    def frame_bytes_min(self) -> int | None:
        """The smallest frame now; raw tokens may be empty."""
        return 0 if self.state is SaslState.RAW_TOKENS else None

    def on_frame(self, frame: memoryview, now_ms: int) -> GuardAnswer | None:
        """Judge a frame; None lets it pass.

        Raises ProtocolError when the connection must be closed at once.
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
        raise ProtocolError("a request after authentication has failed")

    # Before the handshake.

    def _on_first_request(
        self, api_key: int, version: int, frame: memoryview, now_ms: int
    ) -> GuardAnswer | None:
        if api_key == API_VERSIONS:
            if self.state is SaslState.HANDSHAKE:
                raise ProtocolError("a second ApiVersions before authentication")
            # An unknown version is answered by the dispatcher, and asked again in another.
            if API[API_VERSIONS].serves(version):
                self.state = SaslState.HANDSHAKE
            return None
        if api_key == SASL_HANDSHAKE:
            return self._on_handshake(version, frame, now_ms)
        raise ProtocolError(f"api key {api_key} before authentication")

    def _on_handshake(self, version: int, frame: memoryview, now_ms: int) -> GuardAnswer:
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
        return GuardAnswer(header=header, message=SaslHandshakeResponse(mechanisms=names))

    # Tokens.

    def _on_token_request(
        self, api_key: int, version: int, frame: memoryview, now_ms: int
    ) -> GuardAnswer:
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
        return GuardAnswer(
            header=header,
            message=SaslAuthenticateResponse(
                error_message=None, auth_bytes=token, session_lifetime_ms=lifetime_ms
            ),
        )

    def _on_raw_token(self, token: bytes, now_ms: int) -> GuardAnswer:
        try:
            answer, _ = self._answer_to(token, now_ms, hears_lifetime=False)
        except RefusedError:
            return self._failed(RAW_TOKEN_HEADER, None, now_ms)
        return GuardAnswer(header=RAW_TOKEN_HEADER, token=answer)

    def _answer_to(self, token: bytes, now_ms: int, *, hears_lifetime: bool) -> tuple[bytes, int]:
        """Return the answer to a token, and how long the session lasts once it has begun.

        Raises RefusedError where the login has failed.
        """
        assert self._exchange is not None
        try:
            reply = self._exchange.respond(token)
        except ProtocolError:
            # One text for every reason: which check failed is a hint.
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
        """Note who the client is; return how long its session lasts, 0 without an end."""
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
        # A client of an old version does not hear of the end, which comes all the same, as in
        # Kafka: else a token that has ended would serve on by an old version.
        return lifetime_ms if hears_lifetime else 0

    # A session that ends.

    def _on_request(
        self, api_key: int, version: int, frame: memoryview, now_ms: int
    ) -> GuardAnswer | None:
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

    def _failed(self, header: RequestHeader, message: Message | None, now_ms: int) -> GuardAnswer:
        self.state = SaslState.FAILED
        self._exchange = None
        if self._user is None:
            self._rules.counts.failures += 1
        else:
            self._rules.counts.reauthentication_failures += 1
        return GuardAnswer(
            header=header, message=message, closes_at_ms=now_ms + self._rules.failure_delay_ms
        )


def _decoded(kind: type[M], version: int, frame: memoryview) -> tuple[RequestHeader, M]:
    """Return header and body of a request that is allowed now; ProtocolError where it is none."""
    if not API[kind.API_KEY].serves(version):
        raise ProtocolError(f"version {version} of {API[kind.API_KEY].name}")
    header = decode_request_header(frame)
    request, _ = decode_prefix(kind, version, frame, header.body_at, ELEMENTS_BYTES_MAX)
    return header, request
