"""Committed offsets are registers: a fetch returns the last committed offset, or the checker
fails."""

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ottla.jepsen.checkers.offsets import check_offsets
from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.history import Event, EventKind, History, Json
from tests.jepsen.checkers.object_histories import object_history
from tests.jepsen.checkers.queue_histories import renumbered
from tests.jepsen.checkers.script import Script

SEEDS = st.integers(0, 1 << 32)


class Registers:
    """Offsets that are where they were put, and one coordinator for each group."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, str], int] = {}
        self.count = 0

    def choose(self, rng: Random, thread: int) -> tuple[str, Json]:
        where = [rng.choice(("g", "h")), rng.choice(("q-0", "q-1"))]
        if rng.random() < 0.5:
            return "fetch", [*where, None]
        self.count += 1
        return "commit", [*where, self.count]

    def apply(self, rng: Random, thread: int, f: str, asked: Json) -> tuple[Json, EventKind]:
        group, key, offset = asked
        if f == "commit":
            self.offsets[group, key] = offset
            return asked, EventKind.OK
        return [group, key, self.offsets.get((group, key))], EventKind.OK

    def extra(self, f: str, asked: Json, script_of: Json) -> Mapping[str, Json]:
        return {"node": "1"}


@given(SEEDS, st.sampled_from((0.0, 0.1, 0.3)))
@settings(max_examples=150, deadline=None)
def test_registers_that_keep_their_writes_pass(seed: int, trouble: float) -> None:
    history = object_history(Random(seed), Registers(), trouble=trouble)
    verdict = check_offsets(history, RunFacts())
    assert verdict.valid is True
    assert verdict.findings_count == {}


@given(SEEDS)
@settings(max_examples=80, deadline=None)
def test_a_fetch_of_what_had_been_overwritten_is_reported_and_nothing_else(seed: int) -> None:
    history = object_history(Random(seed), Registers(), trouble=0.1)
    bad = overwritten_fetch(history, Random(seed))
    assume(bad is not None)
    assert bad is not None
    verdict = check_offsets(bad, RunFacts())
    assert verdict.valid is False
    assert verdict.findings_count == {"nonlinearizable": 1}
    assert verdict.findings[0].operations


def overwritten_fetch(history: History, rng: Random) -> History | None:
    """Have a fetch tell an offset after which another one was committed, all one by one."""
    commits = [each for each in history.operations("commit") if each.kind is EventKind.OK]
    fetches = [each for each in history.operations("fetch") if each.kind is EventKind.OK]
    rng.shuffle(fetches)
    for fetch in fetches:
        group, key, _ = fetch.value
        done = [
            each
            for each in commits
            if each.value[:2] == [group, key] and each.index < fetch.invoke.index
        ]
        pairs = [(a, b) for a in done for b in done if a.index < b.invoke.index]
        if pairs and fetch.completion is not None:
            old, _ = rng.choice(pairs)
            events = list(history.events)
            events[fetch.index] = Event(
                fetch.index,
                fetch.completion.time_ns,
                fetch.invoke.process,
                EventKind.OK,
                "fetch",
                old.value,
                None,
                {"node": "1"},
            )
            return renumbered(events)
    return None


def script_of(*steps: tuple[str, int | None, str | None], kind: EventKind = EventKind.OK) -> Script:
    """Return a script of operations one after the other: (f, offset, node)."""
    script = Script()
    for f, offset, node in steps:
        asked = ["g", "q-0", offset if f == "commit" else None]
        script.does(0, f, asked, ["g", "q-0", offset], kind, node=node)
    return script


def test_a_deposed_coordinator_may_tell_what_it_knew_and_no_older() -> None:
    began = (("commit", 1, "1"), ("commit", 2, "1"), ("commit", 3, "2"))
    stale = check_offsets(script_of(*began, ("fetch", 2, "1")).history(), RunFacts())
    assert stale.valid is True
    assert stale.findings_count == {"stale-fetch": 1}
    older = check_offsets(script_of(*began, ("fetch", 1, "1")).history(), RunFacts())
    assert older.findings_count == {"nonlinearizable": 1}
    newest = check_offsets(script_of(*began, ("fetch", 2, "2")).history(), RunFacts())
    assert newest.findings_count == {"nonlinearizable": 1}
    new = check_offsets(script_of(*began, ("fetch", 2, "3")).history(), RunFacts())
    assert new.findings_count == {"nonlinearizable": 1}, "a new one must know everything"


def test_a_fetch_of_nothing_fits_only_before_the_first_commit() -> None:
    assert check_offsets(script_of(("fetch", None, "1")).history(), RunFacts()).valid is True
    lost = script_of(("commit", 1, "1"), ("fetch", None, "1"))
    assert check_offsets(lost.history(), RunFacts()).valid is False


def test_a_failed_commit_is_never_seen_and_one_of_unknown_end_may_be() -> None:
    for kind, valid in ((EventKind.FAIL, False), (EventKind.INFO, True)):
        script = script_of(("commit", 1, "1"))
        script.does(1, "commit", ["g", "q-0", 2], kind=kind)
        script.does(0, "fetch", ["g", "q-0", None], ["g", "q-0", 2])
        assert check_offsets(script.history(), RunFacts()).valid is valid


def test_what_could_not_be_decided_is_unknown() -> None:
    script = Script(threads=16)
    for thread in range(16):
        script.begins(thread, "commit", ["g", "q-0", thread])
    for thread in range(16):
        script.ends(thread)
    script.does(0, "fetch", ["g", "q-0", None], ["g", "q-0", 99])
    verdict = check_offsets(script.history(), RunFacts(steps_max=1_000))
    assert verdict.valid == "unknown"
    assert "1000 steps" in (verdict.reason or "")


def test_the_longest_order_of_a_bad_register_is_kept_for_a_picture() -> None:
    verdict = check_offsets(script_of(("commit", 1, "1"), ("fetch", 7, "1")).history(), RunFacts())
    shown = verdict.figures["linear"]["g/q-0"]
    assert [operation["value"] for operation in shown["operations"]] == [1, 7]
    assert shown["order"] == [0]
    assert shown["states"] == [1]
    assert shown["stuck"] == [1]


@pytest.mark.parametrize("key", ["q-0", "q-1"])
def test_registers_are_apart(key: str) -> None:
    script = script_of(("commit", 1, "1"))
    script.does(0, "commit", ["g", "q-1", 5])
    script.does(0, "fetch", ["g", key, None], ["g", key, {"q-0": 1, "q-1": 5}[key]])
    assert check_offsets(script.history(), RunFacts()).valid is True
