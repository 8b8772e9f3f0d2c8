"""Sessions, form tokens and the limit of failed logins, without HTTP."""

import os
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.access.form_tokens import SECRET_BYTES, is_token_of, token_of
from ottla.console.access.gate import SignedIn
from ottla.console.access.login_attempts import (
    DELAY_MS_MAX,
    ENTRIES_MAX,
    FORGOTTEN_AFTER_MS,
    FREE_FAILURES_OF_ADDRESS,
    FREE_FAILURES_OF_USER,
    LoginAttempts,
    network_of,
)
from ottla.console.access.sessions import (
    IDLE_MS,
    SESSION_MS,
    SESSIONS_MAX,
    SESSIONS_OF_USER_MAX,
    SessionTable,
)
from ottla.console.page_types import UserRole


def user(name: str) -> SignedIn:
    return SignedIn(
        user=name,
        role=UserRole.VIEWER,
        form_secret=b"",
        clients=cast(Any, None),
        notices=deque(),
    )


class ClosedNames:
    """Names of the users whose sessions were closed."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def of(self, name: str) -> Callable[[], None]:
        return lambda: self.names.append(name)


def test_a_session_ends_when_idle_and_at_its_age() -> None:
    closed = ClosedNames()
    table = SessionTable(os.urandom)
    idle = table.begin(user("idle"), closed.of("idle"), 0)
    busy = table.begin(user("busy"), closed.of("busy"), 0)
    for now_ms in range(0, SESSION_MS, IDLE_MS - 1):
        assert table.find(busy, now_ms) is not None
    assert table.find(idle, IDLE_MS) is None
    assert closed.names == ["idle"]
    assert table.find(busy, SESSION_MS) is None
    assert closed.names == ["idle", "busy"]
    assert len(table) == 0


def test_expired_sessions_are_closed_without_a_request() -> None:
    closed = ClosedNames()
    table = SessionTable(os.urandom)
    table.begin(user("a"), closed.of("a"), 0)
    table.begin(user("b"), closed.of("b"), 1)
    table.end_expired(IDLE_MS)
    assert closed.names == ["a"]
    table.end_all()
    assert closed.names == ["a", "b"]


def test_sessions_are_bounded_in_all_and_for_each_user() -> None:
    closed = ClosedNames()
    table = SessionTable(os.urandom)
    first = table.begin(user("alice"), closed.of("alice"), 0)
    for _ in range(3 * SESSIONS_OF_USER_MAX):
        table.begin(user("mallory"), closed.of("mallory"), 1)
    assert len(table) == SESSIONS_OF_USER_MAX + 1
    assert table.find(first, 2) is not None
    for number in range(SESSIONS_MAX + 5):
        table.begin(user(f"user {number}"), closed.of("other"), 3)
    assert len(table) == SESSIONS_MAX
    assert len(set(closed.names)) == 3


@pytest.mark.parametrize("secret", ["", "x", "0" * 64, "\x00", "ä", "x" * 10_000, "\ud800"])
def test_no_other_text_is_a_session(secret: str) -> None:
    table = SessionTable(os.urandom)
    table.begin(user("a"), lambda: None, 0)
    assert table.find(secret, 0) is None


@given(st.binary(min_size=SECRET_BYTES, max_size=SECRET_BYTES), st.text(), st.binary(max_size=99))
def test_only_tokens_of_the_secret_count(secret: bytes, text: str, noise: bytes) -> None:
    pad = os.urandom(SECRET_BYTES)
    token = token_of(secret, pad)
    assert is_token_of(token, secret)
    assert not is_token_of(token, os.urandom(SECRET_BYTES))
    assert not is_token_of(text, secret)
    assert not is_token_of(noise.hex(), secret)
    assert not is_token_of(token[:-4], secret)


def test_failures_of_an_address_delay_its_next_attempts_longer_and_longer() -> None:
    attempts = LoginAttempts()
    for number in range(FREE_FAILURES_OF_ADDRESS):
        assert attempts.wait_ms("10.0.0.1", f"user {number}", 0) == 0
        attempts.note_failure("10.0.0.1", f"user {number}", 0)
    waits = []
    for number in range(12):
        waits.append(attempts.wait_ms("10.0.0.1", "another", 0))
        attempts.note_failure("10.0.0.1", f"more {number}", 0)
    assert waits == sorted(waits)
    assert waits[:3] == [2_000, 4_000, 8_000]
    assert waits[-1] == DELAY_MS_MAX
    assert attempts.wait_ms("10.0.0.2", "another", 0) == 0
    assert attempts.wait_ms("10.0.0.1", "another", FORGOTTEN_AFTER_MS) == 0
    # A login with the attacker's own account does not help him.
    attempts.note_success("10.0.0.1", "mallory")
    assert attempts.wait_ms("10.0.0.1", "another", 0) == DELAY_MS_MAX


def test_failures_of_a_user_count_over_all_addresses() -> None:
    attempts = LoginAttempts()
    for number in range(FREE_FAILURES_OF_USER):
        attempts.note_failure(f"10.0.{number}.1", "alice", 0)
    assert attempts.wait_ms("10.9.9.9", "alice", 0) == 2_000
    assert attempts.wait_ms("10.9.9.9", "bob", 0) == 0


def test_the_table_of_failures_is_bounded() -> None:
    attempts = LoginAttempts()
    for number in range(ENTRIES_MAX):
        attempts.note_failure(f"host {number}", f"user {number}", 0)
    assert len(attempts) == ENTRIES_MAX


def test_addresses_of_one_network_count_together() -> None:
    assert network_of("2001:db8:0:1::5") == network_of("2001:db8:0:1:ffff::9")
    assert network_of("2001:db8:0:2::5") != network_of("2001:db8:0:1::5")
    assert network_of("::ffff:10.0.0.1") == "10.0.0.1"
    assert network_of("no address") == "no address"
