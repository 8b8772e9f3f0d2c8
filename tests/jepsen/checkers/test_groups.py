"""A key has one owner in a generation, and committed offsets persist and follow reads."""

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ottla.jepsen.checkers.groups import check_groups
from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.history import Event, EventKind, Json
from tests.jepsen.checkers.object_histories import object_history
from tests.jepsen.checkers.queue_histories import renumbered
from tests.jepsen.checkers.script import Script

SEEDS = st.integers(0, 1 << 32)
KEYS = ("q-0", "q-1", "q-2")


class Coordinator:
    """A group that is rebalanced now and then, and logs that its members read."""

    def __init__(self, threads: int) -> None:
        self.generation = 1
        self.owner = {key: number % threads for number, key in enumerate(KEYS)}
        self.known = [1] * threads
        """The generation each member knows of."""
        self.ends = dict.fromkeys(KEYS, 0)
        self.committed: dict[str, int] = {}
        self.position: dict[tuple[int, str], int] = {}
        self.threads = threads

    def choose(self, rng: Random, thread: int) -> tuple[str, Json]:
        draw = rng.random()
        if draw < 0.25:
            key = rng.choice(KEYS)
            return "send", [["send", key, rng.random()]]
        if draw < 0.32:
            return "join", {"group": "g", "topics": ["q"]}
        f = "poll" if draw < 0.7 else "commit" if draw < 0.9 else "fetch"
        return f, {"group": "g"}

    def apply(self, rng: Random, thread: int, f: str, asked: Json) -> tuple[Json, EventKind]:
        if f == "send":
            _, key, value = asked[0]
            self.ends[key] += 1
            return [["send", key, [self.ends[key] - 1, value]]], EventKind.OK
        if f == "join":
            self.generation += 1
            self.owner = {key: rng.randrange(self.threads) for key in KEYS}
            self.known[thread] = self.generation
            self.position.clear()
            return asked, EventKind.OK
        if f == "fetch":
            return {
                "group": "g",
                "keys": {key: self.committed.get(key) for key in KEYS},
            }, EventKind.OK
        if f == "poll":
            self.known[thread] = self.generation
        elif self.known[thread] != self.generation:
            return None, EventKind.FAIL
        mine = [key for key in KEYS if self.owner[key] == thread]
        membership = {key: self.poll(rng, thread, key) for key in mine}
        if f == "commit":
            self.committed.update(
                (key, self.position[thread, key]) for key in mine if (thread, key) in self.position
            )
            membership = {
                key: self.position[thread, key] for key in mine if (thread, key) in self.position
            }
        value = {
            "group": "g",
            "member": f"m{thread}",
            "generation": self.generation,
            "keys": membership,
        }
        return value, EventKind.OK

    def poll(self, rng: Random, thread: int, key: str) -> Json:
        return []

    def extra(self, f: str, asked: Json, membership: Json) -> Mapping[str, Json]:
        return {}


class ReadingCoordinator(Coordinator):
    """A coordinator whose members also read records."""

    def apply(self, rng: Random, thread: int, f: str, asked: Json) -> tuple[Json, EventKind]:
        self.reads = f == "poll"
        return super().apply(rng, thread, f, asked)

    def poll(self, rng: Random, thread: int, key: str) -> Json:
        if not self.reads:
            return []
        start = self.position.get((thread, key), self.committed.get(key, 0))
        end = min(start + rng.randrange(4), self.ends[key])
        self.position[thread, key] = end
        return [[offset, offset] for offset in range(start, end)]


@given(SEEDS)
@settings(max_examples=150, deadline=None)
def test_a_group_that_keeps_its_promises_passes(seed: int) -> None:
    # A poll whose answer was lost moves its member on unseen: so none is lost here.
    history = object_history(Random(seed), ReadingCoordinator(3), threads=3, count=80, trouble=0.0)
    verdict = check_groups(history, RunFacts())
    assert verdict.valid is True, verdict.findings
    assert verdict.findings_count == {}


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_a_second_owner_is_reported_and_nothing_else(seed: int) -> None:
    history = object_history(Random(seed), ReadingCoordinator(3), threads=3, count=80, trouble=0.0)
    polls = [each for each in history.operations("poll") if each.kind is EventKind.OK]
    owned = [(each, key) for each in polls for key in each.value["keys"]]
    assume(owned)
    poll, key = Random(seed).choice(owned)
    process = 77
    value = {**poll.value, "member": "other", "keys": {key: []}}
    events = [
        *history.events,
        Event(0, 0, process, EventKind.INVOKE, "poll", {"group": "g"}),
        Event(0, 0, process, EventKind.OK, "poll", value),
    ]
    verdict = check_groups(renumbered(events), RunFacts())
    assert verdict.findings_count == {"two-owners": 1}
    assert verdict.valid is False


# ---- by hand


def membership(generation: int | None, keys: Json, member: str = "m1") -> dict[str, Json]:
    return {"group": "g", "member": member, "generation": generation, "keys": keys}


def counts(script: Script) -> dict[str, int]:
    return dict(check_groups(script.history(), RunFacts()).findings_count)


def test_a_key_has_one_owner_in_a_generation_and_may_move_with_the_next() -> None:
    script = Script()
    script.notes(0, "assigned", membership(1, ["q-0"]))
    script.notes(1, "assigned", membership(2, ["q-0"], "m2"))
    script.notes(2, "assigned", membership(None, ["q-0"], "m3"))
    assert counts(script) == {}
    script.does(0, "poll", {"group": "g"}, membership(2, {"q-0": []}))
    assert counts(script) == {"two-owners": 1}


def test_a_static_member_that_came_back_is_the_same_owner() -> None:
    script = Script()
    script.notes(0, "assigned", membership(1, ["q-0"], "old"))
    script.notes(0, "assigned", membership(1, ["q-0"], "new"))
    assert counts(script) == {}
    script.notes(1, "assigned", membership(1, ["q-0"], "foreign"))
    assert counts(script) == {"two-owners": 1}


def test_a_member_never_goes_back_to_an_older_generation() -> None:
    script = Script()
    script.notes(0, "assigned", membership(2, ["q-0"]))
    script.notes(0, "assigned", membership(1, ["q-1"]))
    assert counts(script) == {"generation-went-back": 1}
    beside = Script()
    beside.begins(1, "poll", {"group": "g"})
    beside.notes(0, "assigned", membership(2, ["q-0"]))
    beside.ends(1, membership(1, {"q-1": []}))
    assert counts(beside) == {}, "it may have been done before"


def test_an_older_generation_never_commits_over_a_newer_one() -> None:
    for generation, wrong in ((2, 0), (1, 1)):
        script = Script()
        script.does(0, "commit", {"group": "g"}, membership(2, {"q-0": 5}, "m0"))
        script.does(1, "commit", {"group": "g"}, membership(generation, {"q-0": 6}, f"m{wrong}"))
        found = counts(script)
        assert found == ({"old-generation-commit": 1} if wrong else {})
    beside = Script()
    beside.begins(1, "commit", {"group": "g"})
    beside.does(0, "commit", {"group": "g"}, membership(2, {"q-0": 5}))
    beside.ends(1, membership(1, {"q-0": 6}, "m2"))
    assert counts(beside) == {}, "it may have been done before"
    beside.does(1, "commit", {"group": "g"}, membership(1, {"q-0": 7}, "m2"))
    assert counts(beside) == {"old-generation-commit": 1}, "the newest still counts"


def test_what_is_committed_was_given_to_some_member() -> None:
    script = Script()
    for value in range(3):
        script.sends(0, value, value)
    script.does(1, "poll", {"group": "g"}, membership(1, {"q-0": [[0, 0]]}))
    script.does(1, "commit", {"group": "g"}, membership(1, {"q-0": 1}))
    assert counts(script) == {}
    script.does(1, "commit", {"group": "g"}, membership(1, {"q-0": 3}))
    assert counts(script) == {"committed-unread": 1}
    finding = check_groups(script.history(), RunFacts()).findings[0]
    assert "2 records below" in finding.detail
    script.does(1, "commit", {"group": "g"}, membership(1, {"q-0": 1}))
    script.does(1, "poll", {"group": "g"}, kind=EventKind.FAIL)
    assert counts(script) == {"committed-unread": 1}
    script.does(1, "poll", {"group": "g"}, kind=EventKind.INFO)
    assert counts(script) == {}, "the assignment of that one is unknown"


def test_what_was_not_committed_and_what_lies_nowhere_known_need_not_be_read() -> None:
    script = Script()
    script.sends(0, 1, 0)
    script.sends(0, 2, None)
    script.does(1, "commit", {"group": "g"}, membership(1, {"q-0": 1}), EventKind.FAIL)
    script.does(1, "commit", {"group": "g"}, membership(1, {"q-0": 1}), EventKind.INFO)
    assert counts(script) == {}


def test_what_is_fetched_is_what_was_committed() -> None:
    script = Script()
    script.does(1, "commit", {"group": "g"}, membership(1, {"q-0": 1}))
    script.does(2, "fetch", {"group": "g"}, {"group": "g", "keys": {"q-0": 1}})
    assert counts(script) == {}
    script.does(2, "fetch", {"group": "g"}, {"group": "g", "keys": {"q-0": None}})
    assert counts(script) == {"nonlinearizable": 1}


@pytest.mark.parametrize("kind", [EventKind.FAIL, EventKind.INFO])
def test_what_did_not_succeed_claims_nothing(kind: EventKind) -> None:
    script = Script()
    script.does(0, "poll", {"group": "g"}, membership(1, {"q-0": []}), kind)
    script.does(1, "poll", {"group": "g"}, membership(1, {"q-0": []}, "m2"))
    assert counts(script) == {}
