"""Times at which a client may get and push: against Kafka's own bookkeeping of two instants."""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.telemetry.clients.gate import PushGate

INTERVAL_MS = 1_000
START_MS = 50


class KafkaGate:
    """Kafka's state of a client: the times of its last get and its last push."""

    def __init__(self) -> None:
        self.last_get_ms = self.last_push_ms = -10 * INTERVAL_MS

    def get(self, now_ms: int) -> bool:
        if now_ms - max(self.last_get_ms, self.last_push_ms) < INTERVAL_MS:
            return False
        self.last_get_ms = now_ms
        return True

    def push(self, now_ms: int) -> bool:
        if self.last_get_ms <= self.last_push_ms and now_ms - self.last_push_ms < INTERVAL_MS:
            return False
        self.last_push_ms = now_ms
        return True


class Step(NamedTuple):
    pause_ms: int
    is_push: bool


STEPS = st.lists(
    st.builds(Step, st.sampled_from([1, 2, 499, 500, 501, 999, 1_000, 1_001]), st.booleans()),
    max_size=30,
)


@given(STEPS)
def test_gets_and_pushes_are_taken_up_exactly_when_kafka_does(steps: list[Step]) -> None:
    gate, kafka = PushGate(INTERVAL_MS), KafkaGate()
    now_ms = START_MS
    for step in steps:
        now_ms += step.pause_ms
        ours: Callable[[int], int] = gate.try_push if step.is_push else gate.try_get
        theirs = kafka.push if step.is_push else kafka.get
        assert (ours(now_ms) == 0) is theirs(now_ms)


@given(STEPS)
def test_a_client_is_accepted_exactly_after_its_announced_wait(
    steps: list[Step],
) -> None:
    gate = PushGate(INTERVAL_MS)
    now_ms = START_MS
    for step in steps:
        now_ms += step.pause_ms
        attempt = gate.try_push if step.is_push else gate.try_get
        early_ms = attempt(now_ms)
        assert 0 <= early_ms <= INTERVAL_MS
        if early_ms:
            assert attempt(now_ms + early_ms - 1) == 1
            assert attempt(now_ms + early_ms) == 0
            now_ms += early_ms


class Attempt(NamedTuple):
    pause_ms: int
    is_get: bool
    is_good: bool


@given(
    st.lists(
        st.builds(
            Attempt,
            st.sampled_from([1, 2, 400, 500, 501, 999, 1_000, 1_500]),
            st.booleans(),
            st.booleans(),
        ),
        max_size=40,
    )
)
def test_one_push_an_interval_is_accepted_at_the_most_however_a_client_excuses_itself(
    attempts: list[Attempt],
) -> None:
    gate = PushGate(INTERVAL_MS)
    now_ms, is_excused = START_MS, False
    accepted_ms: list[int] = []
    for attempt in attempts:
        now_ms += attempt.pause_ms
        if attempt.is_get:
            if not gate.try_get(now_ms, is_excused=is_excused):
                is_excused = False
        elif gate.try_push(now_ms):
            is_excused = False
        elif attempt.is_good:
            is_excused = False
            accepted_ms.append(now_ms)
        else:
            is_excused = True
    for first, second in pairwise(accepted_ms):
        assert second - first >= INTERVAL_MS


@pytest.mark.parametrize(("after_ms", "early_ms"), [(0, 500), (499, 1), (500, 0), (800, 0)])
def test_after_an_excused_get_a_push_may_come_from_half_an_interval_on(
    after_ms: int, early_ms: int
) -> None:
    gate = PushGate(INTERVAL_MS)
    assert gate.try_push(START_MS) == 0  # refused for another reason: it counts all the same
    assert gate.try_get(START_MS) == INTERVAL_MS
    assert gate.try_get(START_MS, is_excused=True) == 0
    assert gate.try_push(START_MS + after_ms) == early_ms


def test_a_client_that_excuses_itself_again_and_again_is_not_let_through_faster() -> None:
    gate = PushGate(INTERVAL_MS)
    taken_count = 0
    for now_ms in range(START_MS, START_MS + 10 * INTERVAL_MS):
        if not gate.try_push(now_ms):
            taken_count += 1
        gate.try_get(now_ms, is_excused=True)
    assert taken_count <= 20
