"""TLS handshakes in progress on one server: their order, their share of the event loop's time, and
their deadlines.

Pure. A handshake costs the event loop a millisecond or more, for a client that is not authenticated
yet. All handshakes of a process together may use half of the event loop's time. A few handshake
steps run in each iteration, after the open connections are served. A handshake that takes too long
is ended. Until its client has sent bytes, a handshake occupies only a socket.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from ottla.model.quotas.token_bucket import TokenBucket

HANDSHAKE_MS_MAX = 30_000
"""Maximum milliseconds of a TLS handshake, including waits. With a smaller value, clients are cut
off when very many connect at the same time. With a larger one, unauthenticated clients occupy
connections for longer."""

LOOP_SHARE = 0.5
"""Fraction of the event loop's time that TLS handshakes may use. With a larger value, many
simultaneous clients are admitted sooner. With a smaller one, the open connections are delayed less.
"""

BURST_MS = 200
"""Maximum milliseconds of unused handshake time that accumulate, so that a single client's TLS
handshake never waits."""

TURN_NS = 2_000_000
"""Maximum nanoseconds of TLS handshake work per event-loop iteration, exceeded by at most one
step."""

HINTS = {
    "HTTP_REQUEST": "the client speaks HTTP",
    "WRONG_VERSION_NUMBER": "the client does not speak TLS; its security.protocol must be SSL, or "
    "SASL_SSL where it logs in",
    "UNSUPPORTED_PROTOCOL": "the client and ssl.enabled.protocols have no version of TLS in common",
    "NO_SHARED_CIPHER": "the client and ssl.cipher.suites have no suite in common",
    "NO_SUITABLE_SIGNATURE_ALGORITHM": "the client does not take certificates with such a key",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has shown no certificate, and ssl.client.auth "
    "is required",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the CA of this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not accept this broker's certificate: it "
    "may not trust its CA, or not find the host's name in it",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept this broker's certificate: it may "
    "not trust its CA, or not find the host's name in it",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this broker's certificate has expired",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the client has no version of ssl.enabled.protocols",
}
"""Explanations of OpenSSL's error reasons for operators, by reason."""

C = TypeVar("C")


def failure_sentence(reason: str | None, of_certificate: str | None) -> str:
    """Return a log message that explains a failed TLS handshake. `reason` is OpenSSL's reason for
    the failure, or None. `of_certificate` is OpenSSL's reason for rejecting the client's
    certificate, or None."""
    if of_certificate:
        return f"the client's certificate is not accepted: {of_certificate}"
    if reason in HINTS:
        return HINTS[reason]
    return (reason or "not understood").lower().replace("_", " ")


class Handshakes(Generic[C]):
    """Unfinished TLS handshakes of a server, and a queue of the handshakes whose client has sent
    bytes."""

    def __init__(self, now_ms: int) -> None:
        self._deadlines: dict[C, int] = {}
        """Deadline of each unfinished TLS handshake. The earliest is first, since all have the same
        timeout."""
        self.queued: dict[C, None] = {}
        """Connections that wait for the next step of their TLS handshake, in order."""
        self._budget = TokenBucket(LOOP_SHARE * 1_000, BURST_MS, now_ms)
        """Budget of event-loop time that TLS handshakes may use, in milliseconds."""
        self._is_watched = False
        """True if a call of `overdue`, which removes handshakes after their deadline, is
        scheduled."""

    def __len__(self) -> int:
        """Return the number of unfinished TLS handshakes."""
        return len(self._deadlines)

    def begin(self, channel: C, now_ms: int) -> int | None:
        """Add a new connection, whose TLS handshake begins. Returns the monotonic time in
        milliseconds at which the caller must call `overdue`, or None if that call is scheduled
        already."""
        self._deadlines[channel] = deadline_ms = now_ms + HANDSHAKE_MS_MAX
        if self._is_watched:
            return None
        self._is_watched = True
        return deadline_ms

    def end(self, channel: C) -> None:
        """Remove a connection whose TLS handshake has succeeded or failed. A second call has no
        effect."""
        self._deadlines.pop(channel, None)
        self.queued.pop(channel, None)

    def queue(self, channel: C) -> None:
        """Queue a connection whose client has sent bytes of its TLS handshake."""
        if channel in self._deadlines:
            self.queued[channel] = None

    def wait_ms(self, now_ms: int) -> int:
        """Return the milliseconds until the next TLS handshake step may run. The result is 0 if the
        handshakes have not used up their share of the event loop's time."""
        self._budget.fill(now_ms)
        return self._budget.throttle_ms

    def turn(self, now_ms: int) -> Iterator[C]:
        """Yield the connections whose TLS handshake step is next. Ends when the handshakes have
        used up their share of time. The caller must call `spend` after each step."""
        while self.queued and not self.wait_ms(now_ms):
            channel = next(iter(self.queued))
            del self.queued[channel]
            yield channel

    def spend(self, step_ns: int, now_ms: int) -> None:
        """Subtract the duration of a step from the event-loop time that TLS handshakes may use."""
        self._budget.spend(step_ns / 1_000_000, now_ms)

    def overdue(self, now_ms: int) -> tuple[list[C], int | None]:
        """Remove the connections whose TLS handshake deadline has passed. Returns these
        connections, and the time in milliseconds of the next call, or None if no handshake is
        left."""
        found = []
        for channel, deadline_ms in self._deadlines.items():
            if deadline_ms > now_ms:
                break
            found.append(channel)
        for channel in found:
            self.end(channel)
        next_ms = next(iter(self._deadlines.values()), None)
        self._is_watched = next_ms is not None
        return found, next_ms
