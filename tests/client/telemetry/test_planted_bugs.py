"""Each planted bug of the dialogue about metrics is found by the walk over its events."""

import random

import pytest

from ottla.client.telemetry.push_session import (
    ASK_AT_ONCE,
    GetSubscription,
    PushMetrics,
    PushSession,
    PushState,
)
from ottla.model.errors import ErrorCode
from ottla.wire.compression import Codec
from tests.client.telemetry.test_push_session import BrokenInvariantError, walk

SEEDS = 400


class PushesOnAfterItsEnd(PushSession):
    """The terminating push is not the last: the state is left unchanged."""

    def close(self) -> PushMetrics | None:
        state = self.state
        push = super().close()
        if push is not None:
            self.state = state
        return push


class AsksAtOnceAfterAThrottle(PushSession):
    """Every refusal is followed by a request at once."""

    def on_push_answer(self, code: int, codec: Codec, throttle_ms: int, now_ms: int) -> bool:
        if code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            code = next(iter(ASK_AT_ONCE))
        return super().on_push_answer(code, codec, throttle_ms, now_ms)

    def on_refusal(self, code: int, throttle_ms: int, now_ms: int) -> None:
        self._wait(0, now_ms)


class PushesWithoutJitter(PushSession):
    """The first push leaves with the subscription."""

    def _jittered(self, interval_ms: int) -> int:
        return 0


class SendsTwoAtATime(PushSession):
    """A push leaves though the answer to another is due."""

    def due(self, now_ms: int) -> GetSubscription | PushMetrics | None:
        if self.state is PushState.PUSHING and now_ms >= self.next_at_ms:
            return self._push(is_last=False)
        return super().due(now_ms)


class ForgetsTheInterval(PushSession):
    """A push that is accepted is followed by the next one."""

    def on_push_answer(self, code: int, codec: Codec, throttle_ms: int, now_ms: int) -> bool:
        accepted = super().on_push_answer(code, codec, throttle_ms, now_ms)
        if accepted:
            self.next_at_ms = now_ms
        return accepted


@pytest.mark.parametrize(
    ("bug", "invariant"),
    [
        (PushesOnAfterItsEnd, "LastIsLast"),
        (AsksAtOnceAfterAThrottle, "NoStorm"),
        (PushesWithoutJitter, "OnePushAnInterval"),
        (SendsTwoAtATime, "OneRequestAtATime"),
        (ForgetsTheInterval, "OnePushAnInterval"),
    ],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
def test_a_planted_bug_is_found(bug: type[PushSession], invariant: str) -> None:
    found = set()
    for seed in range(SEEDS):
        try:
            walk(bug, random.Random(seed))
        except BrokenInvariantError as error:
            found.add(str(error))
            if invariant in found:
                return
    pytest.fail(f"{invariant} was not found broken, but {found}")


def test_the_session_itself_breaks_nothing() -> None:
    for seed in range(SEEDS):
        walk(PushSession, random.Random(seed))
