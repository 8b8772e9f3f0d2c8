"""Recorded events are read back unchanged, and no operation starts under an ended process."""

import pytest

from ottla.jepsen.checkers.verdict import DirectoryCheck, Findings, RunFacts, Verdict, combined
from ottla.jepsen.history import NEMESIS, Event, EventKind, History, Operation, Recorder


class TickingClock:
    """A clock that moves on by one with every look."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 1
        return self.now_ns


def recorded() -> Recorder:
    return Recorder(TickingClock(), concurrency=2)


def test_an_operation_is_its_invocation_and_what_came_next_of_its_process() -> None:
    noting = recorded()
    first = noting.invoke(0, "send", [["send", "q-0", 1]])
    second = noting.invoke(1, "poll", [["poll"]])
    fault = noting.nemesis("kill", {"nodes": ["b1"], "phase": "start"})
    done = noting.complete(second, EventKind.OK, [["poll", {}]])
    failed = noting.complete(first, EventKind.FAIL, error="NOT_LEADER_OR_FOLLOWER")
    third = noting.invoke(0, "poll", [["poll"]])
    history = noting.history()
    assert history.operations() == (
        Operation(first, failed),
        Operation(second, done),
        Operation(third),
    )
    assert history.operations("poll") == [Operation(second, done), Operation(third)]
    assert history.nemesis() == [fault]
    assert fault.process == NEMESIS
    assert failed.value == first.value


def test_a_process_that_does_not_know_how_it_ended_never_acts_again() -> None:
    noting = recorded()
    noting.complete(noting.invoke(1, "send"), EventKind.INFO)
    assert noting.process(1) == 3
    assert noting.process(0) == 0
    with pytest.raises(AssertionError):
        noting.invoke(1, "send")
    noting.invoke(3, "send")


def test_a_process_does_one_thing_at_a_time() -> None:
    noting = recorded()
    begun = noting.invoke(0, "send")
    with pytest.raises(AssertionError):
        noting.invoke(0, "send")
    noting.complete(begun, EventKind.OK)
    with pytest.raises(AssertionError):
        noting.complete(begun, EventKind.OK)


def test_what_happens_beside_an_operation_is_noted_under_a_number_of_its_own() -> None:
    noting = recorded()
    begun = noting.invoke(0, "poll")
    given = {"keys": ["q-0"]}
    noted = noting.note(1_000_000, "revoked", given)
    done = noting.complete(begun, EventKind.OK)
    first, second = noting.history().operations()
    assert first == Operation(begun, done)
    assert (second.completion, second.invoke.value) == (noted, given)


def test_an_event_is_handed_on_at_once() -> None:
    seen: list[Event] = []
    noting = Recorder(TickingClock(), concurrency=1, sink=seen.append)
    begun = noting.invoke(0, "send")
    assert seen == [begun]


def test_a_history_is_read_as_it_was_written() -> None:
    noting = recorded()
    begun = noting.invoke(0, "send", [["send", "ö-0", 1]], {"client": "ottla"})
    noting.complete(begun, EventKind.INFO, error="timed out", extra={"rebalanced": ["q-0"]})
    noting.nemesis("heal")
    history = noting.history()
    assert History.from_lines(history.to_lines()).events == history.events


def test_a_last_line_that_was_cut_off_is_left_out_and_any_other_is_an_error() -> None:
    noting = recorded()
    for _ in range(3):
        noting.nemesis("kill")
    lines = list(noting.history().to_lines())
    assert len(History.from_lines([*lines[:2], lines[2][:-9]]).events) == 2
    with pytest.raises(ValueError, match="line 1"):
        History.from_lines([lines[0][:-9] + "\n", *lines[1:]])


def test_an_operation_of_unknown_end_has_the_value_of_its_invocation() -> None:
    noting = recorded()
    begun = noting.invoke(0, "send", [["send", "q-0", 1]], {"client": "ottla"})
    assert Operation(begun).value == [["send", "q-0", 1]]
    assert Operation(begun).kind is EventKind.INFO
    done = noting.complete(begun, EventKind.OK, [["send", "q-0", [7, 1]]], extra={"node": "b1"})
    operation = Operation(begun, done)
    assert operation.value == [["send", "q-0", [7, 1]]]
    assert operation.extra == {"client": "ottla", "node": "b1"}
    assert operation.index == done.index


def test_facts_and_verdicts_are_read_as_they_were_written() -> None:
    facts = RunFacts(
        clients=("ottla", "confluent"),
        allowed=frozenset({"G0"}),
        server_errors=(("b1", "AssertionError"),),
        directory_checks=(DirectoryCheck("b1", is_sound=True),),
    )
    assert RunFacts.from_json(facts.to_json()) == facts
    assert RunFacts.from_json({}) == RunFacts()
    findings = Findings("log")
    findings.add("lost-write", "value 7 of q-0 is gone", (3, 4), "q-0")
    findings.figures["reads"] = 3
    verdict = findings.verdict(facts)
    assert Verdict.from_json(verdict.to_json()) == verdict


def test_a_verdict_counts_everything_keeps_a_few_and_fails_by_what_is_not_allowed() -> None:
    findings = Findings("log")
    for number in range(20):
        findings.add("G0", f"cycle {number}")
    assert findings.verdict(RunFacts()).valid is False
    allowed = findings.verdict(RunFacts(), allowed=frozenset({"G0"}))
    assert allowed.valid is True
    assert allowed.findings_count == {"G0": 20}
    assert len(allowed.findings) == 8
    findings.undecided.append("q-0 was too much")
    assert findings.verdict(RunFacts(allowed=frozenset({"G0"}))).valid == "unknown"
    assert findings.verdict(RunFacts()).valid is False


def test_what_is_unknown_is_never_a_pass() -> None:
    good, bad, open_ = (Verdict("log", valid) for valid in (True, False, "unknown"))
    assert combined([good, good]) is True
    assert combined([good, open_]) == "unknown"
    assert combined([open_, bad, good]) is False
    assert combined([]) == "unknown"
