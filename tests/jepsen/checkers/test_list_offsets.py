"""A log's end is behind all that was acknowledged before it was asked for."""

from collections.abc import Mapping
from random import Random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ottla.jepsen.checkers.list_offsets import DEPOSED, UNKNOWN, check_list_offsets
from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.history import Event, EventKind, Json
from tests.jepsen.checkers.object_histories import object_history
from tests.jepsen.checkers.queue_histories import renumbered
from tests.jepsen.checkers.script import Script

SEEDS = st.integers(0, 1 << 32)


class Logs:
    """Logs whose leaders report their end offsets."""

    def __init__(self) -> None:
        self.ends = {"q-0": 0, "q-1": 0}
        self.values = 0

    def choose(self, rng: Random, thread: int) -> tuple[str, Json]:
        key = rng.choice(("q-0", "q-1"))
        if rng.random() < 0.5:
            return "end-offset", [key, None]
        self.values += 1
        return "send", [["send", key, self.values]]

    def apply(self, rng: Random, thread: int, f: str, asked: Json) -> tuple[Json, EventKind]:
        if f == "end-offset":
            return [asked[0], self.ends[asked[0]]], EventKind.OK
        _, key, value = asked[0]
        self.ends[key] += 1
        return [["send", key, [self.ends[key] - 1, value]]], EventKind.OK

    def extra(self, f: str, asked: Json, result: Json) -> Mapping[str, Json]:
        return {"leader_epoch": 1} if f == "end-offset" else {}


@given(SEEDS)
@settings(max_examples=80, deadline=None)
def test_ends_that_are_true_pass(seed: int) -> None:
    verdict = check_list_offsets(object_history(Random(seed), Logs(), trouble=0.2), RunFacts())
    assert verdict.valid is True
    assert verdict.findings_count == {}


@given(SEEDS)
@settings(max_examples=80, deadline=None)
def test_an_end_before_what_was_acknowledged_is_reported_and_nothing_else(seed: int) -> None:
    rng = Random(seed)
    history = object_history(rng, Logs(), trouble=0.1)
    sends = [each for each in history.operations("send") if each.kind is EventKind.OK]
    places = [
        (send, asked)
        for asked in history.operations("end-offset")
        for send in sends
        if asked.kind is EventKind.OK
        and send.index < asked.invoke.index
        and send.value[0][1] == asked.value[0]
    ]
    assume(places)
    send, asked = rng.choice(places)
    events = list(history.events)
    at = events[asked.index]
    value = [asked.value[0], send.value[0][2][0]]
    events[asked.index] = Event(
        at.index, at.time_ns, at.process, at.kind, at.f, value, None, at.extra
    )
    verdict = check_list_offsets(renumbered(events), RunFacts())
    assert verdict.findings_count == {"stale-end-offset": 1}
    assert verdict.valid is False


def asked(script: Script, thread: int, end: int, **extra: Json) -> None:
    script.does(thread, "end-offset", ["q-0", None], ["q-0", end], **extra)


def counts(script: Script) -> dict[str, int]:
    return dict(check_list_offsets(script.history(), RunFacts()).findings_count)


def test_a_deposed_leader_may_tell_less_but_not_of_ones_own_and_not_at_the_end() -> None:
    def after_a_send() -> Script:
        script = Script()
        script.sends(0, 1, 0)
        asked(script, 2, 1, leader_epoch=2)
        return script

    script = after_a_send()
    asked(script, 1, 0, leader_epoch=1)
    assert counts(script) == {DEPOSED: 1}
    assert check_list_offsets(script.history(), RunFacts()).valid is True
    script = after_a_send()
    asked(script, 0, 0, leader_epoch=1)
    assert counts(script) == {"stale-end-offset": 1}
    script = after_a_send()
    asked(script, 0, 0, leader_epoch=1, own_view=False)
    assert counts(script) == {DEPOSED: 1}, "who asks is not the client that was acknowledged"
    script = after_a_send()
    asked(script, 0, 0, leader_epoch=2, own_view=False)
    assert counts(script) == {"stale-end-offset": 1}, "its leader knew, whichever client asked"
    script = after_a_send()
    asked(script, 1, 0, leader_epoch=1, final=True)
    assert counts(script) == {"stale-end-offset": 1}
    script = after_a_send()
    asked(script, 1, 0, leader_epoch=2)
    assert counts(script) == {"stale-end-offset": 1}
    script = after_a_send()
    asked(script, 1, 0)
    assert counts(script) == {UNKNOWN: 1}


def test_an_end_never_goes_back_at_one_leader_or_a_newer_one() -> None:
    for epoch, name in ((1, "end-offset-went-back"), (2, "end-offset-went-back"), (0, "")):
        script = Script()
        asked(script, 0, 5, leader_epoch=1)
        asked(script, 1, 4, leader_epoch=epoch)
        assert counts(script) == ({name: 1} if name else {})


def test_ends_asked_for_at_once_may_come_in_any_order() -> None:
    script = Script()
    script.begins(0, "end-offset", ["q-0", None], leader_epoch=1)
    script.begins(1, "send", [["send", "q-0", 7]])
    asked(script, 2, 5, leader_epoch=1)
    script.ends(1, [["send", "q-0", [4, 7]]])
    script.ends(0, ["q-0", 4])
    assert counts(script) == {}


def test_an_unwritten_log_ends_at_offset_zero() -> None:
    script = Script()
    asked(script, 0, 0, leader_epoch=0)
    script.sends(0, 1, 0)
    asked(script, 0, 0, leader_epoch=0)
    assert counts(script) == {"stale-end-offset": 1}
