"""Handshakes of TLS under way in one server: whose turn it is, for how long, and until when.  Pure.

A handshake costs the loop a millisecond and more, and who asks for one is not known yet.  All
handshakes of a process together may take half of the loop's time, in small parts of a turn, after
the connections that are open have had theirs; one that takes too long is ended, and until its
client has said something it holds a socket and nothing else.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from ottla.model.token_bucket import TokenBucket

HANDSHAKE_MS_MAX = 30_000
"""How long a handshake may take, waits included.  Lower cuts off clients when very many come at
once, higher lets strangers hold connections for longer."""

LOOP_SHARE = 0.5
"""The part of the loop's time that handshakes may take.  Higher lets a crowd of clients in sooner,
lower delays the others less."""

BURST_MS = 200
"""For how long the credit of handshakes adds up: a client that comes alone never waits."""

TURN_NS = 2_000_000
"""How long handshakes may hold a turn of the loop, give or take one step."""

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
"""What OpenSSL's reasons mean here."""

C = TypeVar("C")


def failure_sentence(reason: str | None, of_certificate: str | None) -> str:
    """Return why a handshake failed; `of_certificate` is what OpenSSL said of the client's."""
    if of_certificate:
        return f"the client's certificate is not accepted: {of_certificate}"
    if reason in HINTS:
        return HINTS[reason]
    return (reason or "not understood").lower().replace("_", " ")


class Handshakes(Generic[C]):
    """The handshakes that have not ended: a queue of those whose client has said something."""

    def __init__(self, now_ms: int) -> None:
        self._deadlines: dict[C, int] = {}
        """By when each must have ended; the earliest first, for all have the same time."""
        self._queue: dict[C, None] = {}
        self._budget = TokenBucket(LOOP_SHARE * 1_000, BURST_MS, now_ms)
        """Milliseconds of the loop."""
        self._is_watched = False
        """Whether those that are overdue will be asked for."""

    def __len__(self) -> int:
        """Return how many handshakes have not ended."""
        return len(self._deadlines)

    def begin(self, channel: C, now_ms: int) -> int | None:
        """Note a new connection; return when to ask for those that are overdue.

        None where that is known already.
        """
        self._deadlines[channel] = deadline_ms = now_ms + HANDSHAKE_MS_MAX
        if self._is_watched:
            return None
        self._is_watched = True
        return deadline_ms

    def end(self, channel: C) -> None:
        """Forget a connection whose handshake has succeeded or failed.  Twice is once."""
        self._deadlines.pop(channel, None)
        self._queue.pop(channel, None)

    def queue(self, channel: C) -> None:
        """Note that a client has said something."""
        if channel in self._deadlines:
            self._queue[channel] = None

    @property
    def has_queue(self) -> bool:
        """Whether a client waits for an answer."""
        return bool(self._queue)

    def wait_ms(self, now_ms: int) -> int:
        """Return for how long no handshake may go on: its share of the loop is used up."""
        self._budget.fill(now_ms)
        return self._budget.throttle_ms

    def turn(self, now_ms: int) -> Iterator[C]:
        """Yield whose step is next, as long as the share of the loop lasts; `spend` after each."""
        while self._queue and not self.wait_ms(now_ms):
            channel = next(iter(self._queue))
            del self._queue[channel]
            yield channel

    def spend(self, step_ns: int, now_ms: int) -> None:
        """Count the time that a step took."""
        self._budget.spend(step_ns / 1_000_000, now_ms)

    def overdue(self, now_ms: int) -> tuple[list[C], int | None]:
        """Return the connections whose time is over, and when to ask again; None with none left.

        They are forgotten.
        """
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
