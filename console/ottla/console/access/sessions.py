"""Table of the sessions of signed-in users, by the secret in the session's cookie. Pure.

The table contains digests of the secrets. A session ends in the following cases:

- It had no request for `IDLE_MS`, or has lasted for `SESSION_MS`.
- The user signs out.
- The user has more than `SESSIONS_OF_USER_MAX` sessions.

A login always gets a new secret, never the value of a cookie that the browser sent.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable

from ottla.console.access.form_tokens import SECRET_BYTES
from ottla.console.access.gate import SignedIn

SESSIONS_MAX = 500
"""Maximum number of open sessions of the console. Each session has its own clients, with
connections to brokers."""
SESSIONS_OF_USER_MAX = 10
IDLE_MS = 30 * 60_000
SESSION_MS = 12 * 3_600_000
COOKIE_CHARS_MAX = 128


class ConsoleSession:
    """One session of a browser: its signed-in user, and the function that closes the user's
    clients."""

    def __init__(self, signed_in: SignedIn, close: Callable[[], None], now_ms: int) -> None:
        self.signed_in = signed_in
        self.close = close
        self.began_ms = now_ms
        self.last_ms = now_ms

    def has_expired(self, now_ms: int) -> bool:
        """Return True if the session was idle for too long or is too old."""
        return now_ms - self.last_ms >= IDLE_MS or now_ms - self.began_ms >= SESSION_MS


class SessionTable:
    """The open sessions of the console, the longest idle first."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._sessions: OrderedDict[bytes, ConsoleSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, signed_in: SignedIn, close: Callable[[], None], now_ms: int) -> str:
        """Start the session of a user who has signed in. Returns the secret for the session's
        cookie.

        If the user has too many sessions, the user's longest idle session ends. If the console has
        too many sessions, the longest idle session of all users ends.
        """
        own = [key for key, one in self._sessions.items() if one.signed_in.user == signed_in.user]
        for key in own[: max(0, len(own) - SESSIONS_OF_USER_MAX + 1)]:
            self._end(key)
        while len(self._sessions) >= SESSIONS_MAX:
            self._end(next(iter(self._sessions)))
        secret = self._random_bytes(SECRET_BYTES).hex()
        self._sessions[_digest(secret)] = ConsoleSession(signed_in, close, now_ms)
        return secret

    def find(self, secret: str, now_ms: int) -> SignedIn | None:
        """Return the signed-in user of the session with this secret, and record its use. Returns
        None if the session does not exist or has expired."""
        if not secret or len(secret) > COOKIE_CHARS_MAX:
            return None
        key = _digest(secret)
        session = self._sessions.get(key)
        if session is None:
            return None
        if session.has_expired(now_ms):
            self._end(key)
            return None
        session.last_ms = now_ms
        self._sessions.move_to_end(key)
        return session.signed_in

    def end(self, secret: str) -> None:
        """End the session with this secret, if it is open."""
        self._end(_digest(secret))

    def end_expired(self, now_ms: int) -> None:
        """End all sessions that have expired."""
        for key in [key for key, one in self._sessions.items() if one.has_expired(now_ms)]:
            self._end(key)

    def end_all(self) -> None:
        """End all sessions, when the console stops."""
        for key in list(self._sessions):
            self._end(key)

    def _end(self, key: bytes) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            session.close()


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
