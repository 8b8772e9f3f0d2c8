"""A client's dialogue about its metrics, step by step, as a table, and under any answers."""

import random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.telemetry.push_session import (
    REFUSED_INTERVAL_MS,
    TRANSITIONS,
    UNSUBSCRIBED_INTERVAL_MS,
    GetSubscription,
    PushMetrics,
    PushSession,
    PushState,
    TelemetrySubscription,
)
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.wire.compression import Codec

ID = UUID(int=(7 << 64) + (1 << 31))
"""Its chance is a half: the first push comes after one whole interval."""
INTERVAL_MS = 10_000


def subscription(**other: object) -> TelemetrySubscription:
    plain = TelemetrySubscription(
        subscription_id=1,
        interval_ms=INTERVAL_MS,
        is_delta=True,
        prefixes=["*"],
        codecs=(Codec.ZSTD, Codec.LZ4),
        bytes_max=1_000_000,
    )
    return plain._replace(**other)  # type: ignore[arg-type]  # of the fields' own types


def subscribed(now_ms: int = 0, client: UUID = ID, **other: object) -> PushSession:
    session = PushSession(now_ms)
    assert isinstance(session.due(now_ms), GetSubscription)
    session.on_subscription(client, subscription(**other), now_ms)
    return session


def test_a_client_asks_first_without_an_id() -> None:
    session = PushSession(5)
    assert session.due(4) is None
    assert session.due(5) == GetSubscription(ZERO_UUID)
    assert session.due(6) is None, "one request at a time"


@pytest.mark.parametrize(
    ("bits", "first_ms"), [(0, 5_000), (1 << 31, 10_000), ((1 << 32) - 1, 14_999)]
)
def test_the_first_push_is_spread_by_the_instance_id(bits: int, first_ms: int) -> None:
    session = subscribed(client=UUID(int=(9 << 64) + bits))
    assert session.next_at_ms == first_ms
    assert session.due(first_ms - 1) is None
    assert isinstance(session.due(first_ms), PushMetrics)


def test_pushes_after_the_first_are_an_interval_apart() -> None:
    session = subscribed()
    push = session.due(10_000)
    assert isinstance(push, PushMetrics)
    assert push == PushMetrics(ID, subscription(), Codec.ZSTD, is_last=False)
    assert session.on_push_answer(0, Codec.ZSTD, 0, 10_020)
    assert session.next_at_ms == 20_020


def test_a_cluster_that_wants_nothing_is_asked_again_after_its_interval() -> None:
    session = subscribed(prefixes=[], interval_ms=300_000)
    assert session.state is PushState.SUBSCRIPTION_NEEDED
    assert session.next_at_ms == 300_000
    assert session.due(300_000) == GetSubscription(ID), "with the id it has"
    assert session.close() is None, "nothing was wanted"


@pytest.mark.parametrize(
    ("code", "wait_ms"),
    [
        (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, 0),
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, 0),
        (ErrorCode.TELEMETRY_TOO_LARGE, INTERVAL_MS),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, INTERVAL_MS),
        (ErrorCode.INVALID_RECORD, UNSUBSCRIBED_INTERVAL_MS),
        (ErrorCode.INVALID_REQUEST, REFUSED_INTERVAL_MS),
        (ErrorCode.INVALID_CONFIG, REFUSED_INTERVAL_MS),
        (ErrorCode.UNSUPPORTED_VERSION, REFUSED_INTERVAL_MS),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, REFUSED_INTERVAL_MS),
        (12_345, REFUSED_INTERVAL_MS),
    ],
)
def test_a_refused_push_is_followed_by_a_request_for_the_subscription(
    code: int, wait_ms: int
) -> None:
    session = subscribed()
    session.due(10_000)
    assert not session.on_push_answer(code, Codec.ZSTD, 0, 10_000)
    assert session.next_at_ms == 10_000 + wait_ms
    assert session.due(10_000 + wait_ms) == GetSubscription(ID)


def test_a_throttle_that_is_longer_than_the_interval_is_waited_for() -> None:
    session = subscribed()
    session.due(10_000)
    session.on_push_answer(ErrorCode.THROTTLING_QUOTA_EXCEEDED, Codec.ZSTD, 60_000, 10_000)
    assert session.next_at_ms == 70_000


def test_a_refused_compression_is_not_used_again() -> None:
    session, now_ms, used = subscribed(), 10_000, []
    for _ in range(3):
        push = session.due(now_ms)
        assert isinstance(push, PushMetrics)
        used.append(push.codec)
        session.on_push_answer(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, push.codec, 0, now_ms)
        session.due(now_ms)
        session.on_subscription(ID, subscription(), now_ms)
        now_ms += INTERVAL_MS
    assert used == [Codec.ZSTD, Codec.LZ4, Codec.NONE]


def test_a_refused_request_for_the_subscription_never_repeats_at_once() -> None:
    for code in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
        session = PushSession(0)
        session.due(0)
        session.on_refusal(code, 0, 0)
        assert session.next_at_ms == REFUSED_INTERVAL_MS


def test_a_lost_answer_is_followed_by_a_request_for_the_subscription_after_a_jitter() -> None:
    session = subscribed(client=UUID(int=9 << 64))
    session.due(5_000)
    session.on_lost(5_000)
    assert session.next_at_ms == 10_000
    assert isinstance(session.due(10_000), GetSubscription)
    session.on_lost(10_000)
    assert session.next_at_ms == 15_000
    unnamed = PushSession(0)
    unnamed.due(0)
    unnamed.on_lost(0)
    assert unnamed.next_at_ms == UNSUBSCRIBED_INTERVAL_MS


def test_a_zero_id_and_an_impossible_interval_are_not_believed() -> None:
    session = PushSession(0)
    session.due(0)
    session.on_subscription(ZERO_UUID, subscription(), 0)
    assert (session.is_named, session.next_at_ms) == (False, REFUSED_INTERVAL_MS)
    assert subscribed(interval_ms=-1).next_at_ms == UNSUBSCRIBED_INTERVAL_MS


def test_a_change_of_temporality_is_noticed() -> None:
    session = subscribed()
    session.due(10_000)
    session.on_push_answer(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, Codec.ZSTD, 0, 10_000)
    session.due(10_000)
    assert session.on_subscription(ID, subscription(is_delta=False), 10_000)


def test_the_last_push_is_the_last() -> None:
    session = subscribed()
    last = session.close()
    assert last is not None and last.is_last
    assert session.due(1 << 40) is None
    assert session.close() is None
    session.on_push_answer(0, Codec.ZSTD, 0, 1)
    assert session.state is PushState.ENDED
    assert session.due(1 << 40) is None


def test_a_subscription_that_arrives_after_the_end_is_dropped() -> None:
    session = PushSession(0)
    session.due(0)
    assert session.close() is None
    assert not session.on_subscription(ID, subscription(), 0)
    assert session.state is PushState.ENDED


@pytest.mark.parametrize("state", PushState)
def test_every_state_has_its_row_and_can_end(state: PushState) -> None:
    reached, edge = {state}, {state}
    while edge:
        edge = set().union(*(TRANSITIONS[one] for one in edge)) - reached
        reached |= edge
    assert PushState.ENDED in reached


CODES = [0, 0, 0, 42, 35, 40, 76, 87, 89, 117, 118, 31, -1, 9_999]
WAITS_MS = [0, 1, 100, 4_999, 5_000, 9_999, 10_000, 15_000, 300_000, 1_800_000]
WISHES = [[], ["*"], ["*"], [""], ["a.b"]]
STEPS = 80


class BrokenInvariantError(Exception):
    """An invariant, by its name, that a walk found broken."""


class Walker:
    """Clients, brokers and time for one session, and the checks of its requests."""

    def __init__(self, session: PushSession, rng: random.Random) -> None:
        self.session = session
        self.rng = rng
        self.client = UUID(int=(5 << 64) + 1 + rng.getrandbits(62))
        self.now_ms = 0
        self.under_way: GetSubscription | PushMetrics | None = None
        self.is_over = False
        self.may_push_ms = 0
        """Before this no push is allowed."""
        self.may_ask_ms = 0
        """Before this no request for the subscription is."""

    def step(self) -> None:
        """Do one random event, and check the session's reaction."""
        kind = self.rng.choice(["wait", "wait", "answer", "answer", "answer", "lose", "close"])
        if kind == "wait":
            self.now_ms += self.rng.choice(WAITS_MS)
        elif kind == "close" and self.rng.random() < 0.1:
            last = self.session.close()
            if last is not None and self.is_over:
                raise BrokenInvariantError("LastIsLast")
            self.is_over = True
            self.under_way = last or self.under_way
        elif kind == "lose" and self.under_way is not None:
            self.session.on_lost(self.now_ms)
            self.under_way, self.may_ask_ms = None, self.now_ms + INTERVAL_MS // 2
        elif kind == "answer":
            self.answer()
        self.judge(self.session.due(self.now_ms))

    def answer(self) -> None:
        """Answer the open request, as any broker may."""
        request, code = self.under_way, self.rng.choice(CODES)
        self.under_way = None
        if isinstance(request, PushMetrics):
            self.session.on_push_answer(code, request.codec, 0, self.now_ms)
            self.may_push_ms = self.now_ms + INTERVAL_MS // (1 if code == 0 else 2)
            is_cured = code in (
                ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            )
            self.may_ask_ms = self.now_ms + (0 if is_cured else INTERVAL_MS // 2)
        elif request is not None and code:
            self.session.on_refusal(code, 0, self.now_ms)
            self.may_ask_ms = self.now_ms + INTERVAL_MS // 2
        elif request is not None:
            wanted = subscription(prefixes=self.rng.choice(WISHES))
            self.session.on_subscription(self.client, wanted, self.now_ms)
            self.may_push_ms = self.now_ms + INTERVAL_MS // 2
            self.may_ask_ms = self.now_ms + INTERVAL_MS // 2

    def judge(self, request: GetSubscription | PushMetrics | None) -> None:
        """Raise BrokenInvariantError where a request must not leave now."""
        if request is None:
            return
        if self.is_over:
            raise BrokenInvariantError("LastIsLast")
        if self.under_way is not None:
            raise BrokenInvariantError("OneRequestAtATime")
        if isinstance(request, PushMetrics) and self.now_ms < self.may_push_ms:
            raise BrokenInvariantError("OnePushAnInterval")
        if isinstance(request, GetSubscription) and self.now_ms < self.may_ask_ms:
            raise BrokenInvariantError("NoStorm")
        self.under_way = request


def walk(kind: type[PushSession], rng: random.Random) -> None:
    """Walk one session.  Raises BrokenInvariantError."""
    walker = Walker(kind(0), rng)
    for _ in range(STEPS):
        walker.step()


@given(st.randoms(use_true_random=False))
def test_whatever_brokers_answer_the_invariants_stay(rng: random.Random) -> None:
    walk(PushSession, rng)
