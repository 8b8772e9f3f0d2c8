"""A cluster without faults is available, and is so again soon after a fault; other histories
fail."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.jepsen.checkers.availability import CalmTimes, check_availability, fault_windows
from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.history import EventKind, History, Json, Recorder
from tests.jepsen.checkers.script import Script

S = 1_000_000_000


@dataclass
class Load:
    """A client that sends ten times a second, while faults come and go at given seconds."""

    seconds: int = 200
    faults: tuple[tuple[int, int], ...] = ()
    down: tuple[tuple[int, int], ...] = ()
    """Condition under which sends fail."""
    failing: tuple[str, ...] = ("q-0", "q-1")
    refused: bool = False
    ending: EventKind = EventKind.FAIL
    """Error of failed sends."""

    def history(self) -> History:
        now_ns = 0
        recorder = Recorder(lambda: now_ns, concurrency=1)
        starts = {start: number for number, (start, _) in enumerate(self.faults)}
        ends = {end: number for number, (_, end) in enumerate(self.faults)}
        value = 0
        for second in range(self.seconds):
            now_ns = second * S
            if second in ends:
                recorder.nemesis("kill", {"phase": "end", "id": ends[second]})
            if second in starts:
                recorder.nemesis("kill", {"phase": "start", "id": starts[second]})
            is_down = any(start <= second < end for start, end in self.down)
            for part in range(10):
                key = ("q-0", "q-1")[part % 2]
                value += 1
                now_ns = second * S + part * S // 10 + 1
                begun = recorder.invoke(recorder.process(0), "send", [["send", key, value]])
                now_ns += 1_000
                if is_down and key in self.failing:
                    extra = {"refused": True} if self.refused else {}
                    recorder.complete(begun, self.ending, error="no leader", extra=extra)
                else:
                    recorder.complete(begun, EventKind.OK, [["send", key, [value, value]]])
        return recorder.history()


def counts(load: Load, facts: RunFacts | None = None) -> dict[str, int]:
    return dict(check_availability(load.history(), facts or RunFacts()).findings_count)


def test_what_fails_during_a_fault_and_soon_after_is_forgiven() -> None:
    load = Load(faults=((50, 60),), down=((50, 80),))
    verdict = check_availability(load.history(), RunFacts())
    assert verdict.valid is True
    assert verdict.figures["recovery_s"]["p99"] == 20.1
    assert [took_s for _, took_s, _ in verdict.figures["recovery_over_time"]][-1:] == [20.1]
    assert verdict.figures["calm_ok_share"] == 1.0
    assert verdict.figures["faults"] == 1


def test_what_fails_while_all_is_well_is_unavailable_and_nothing_else() -> None:
    assert counts(Load(down=((100, 104),))) == {"unavailable": 1}
    assert counts(Load(down=((100, 101),))) == {}
    assert counts(Load(down=((100, 104),), refused=True)) == {}, "a refusal is an answer"
    assert counts(Load(faults=((50, 60),), down=((100, 104),))) == {"unavailable": 1}


def test_a_refusal_is_an_answer_also_of_what_may_have_happened_before() -> None:
    """A duplicate is refused the second time: perhaps the first one succeeded."""
    down = ((100, 104),)
    assert counts(Load(down=down, ending=EventKind.INFO)) == {"unavailable": 1}
    assert counts(Load(down=down, ending=EventKind.INFO, refused=True)) == {}


def test_one_key_that_does_not_come_back_is_a_slow_recovery_and_nothing_else() -> None:
    late = Load(faults=((50, 60),), down=((50, 95),), failing=("q-1",))
    facts = RunFacts(ok_share_minimum=0.9)
    assert counts(late, facts) == {"slow-recovery": 1}
    assert counts(late, RunFacts(ok_share_minimum=0.9, recovery_s_max=40)) == {}
    never = Load(faults=((50, 60),), down=((50, 200),), failing=("q-1",))
    assert counts(never, RunFacts(ok_share_minimum=0.3)) == {"slow-recovery": 1}


def test_every_kind_of_operation_must_come_back() -> None:
    script = Script()
    script.fault("kill", "start")
    script.fault("kill", "end")
    for _ in range(40):
        script.does(0, "describe", {"topic": "t"}, kind=EventKind.FAIL)
        script.does(0, "poll", [["poll"]], [["poll", {}]])
    facts = RunFacts(ok_share_minimum=0)
    assert check_availability(script.history(), facts).findings_count == {"slow-recovery": 1}


def test_no_operations_between_two_faults_prove_nothing_of_the_first() -> None:
    script = Script()
    script.fault("kill", "start")
    script.fault("kill", "end")
    for _ in range(40):
        script.does(0, "poll", [["poll"]], [["poll", {}]])
    script.fault("kill", "start")
    script.fault("kill", "end")
    script.sends(0, 1, 0)
    assert check_availability(script.history(), RunFacts()).valid is True


def test_time_under_another_fault_does_not_count_as_recovery() -> None:
    faults = ((50, 60), (70, 90), (100, 120))
    verdict = check_availability(Load(faults=faults, down=((50, 125),)).history(), RunFacts())
    # 10 s of calm until the second fault, 10 s until the third, 5 s after it; then its next turn.
    assert verdict.figures["recovery_s"]["p99"] == 25.1
    assert verdict.valid is True


def test_a_run_that_did_too_little_is_unknown() -> None:
    load = Load(faults=((50, 60),))
    assert counts(load, RunFacts(seconds=200, ops_per_s_minimum=9)) == {}
    assert counts(load, RunFacts(seconds=200, ops_per_s_minimum=11)) == {"too-slow": 1}
    assert counts(load, RunFacts(faults_minimum=2)) == {"too-few-faults": 1}
    assert check_availability(History([]), RunFacts(ops_per_s_minimum=1)).valid == "unknown"


def test_final_reads_crashes_and_notes_are_no_load() -> None:
    script = Script()
    script.does(0, "poll", [["poll"]], kind=EventKind.FAIL, final=True)
    script.does(0, "crash", None, kind=EventKind.INFO)
    script.notes(0, "revoked", {"keys": []})
    verdict = check_availability(script.history(), RunFacts())
    assert verdict.figures["operations"] == {"ok": 0, "fail": 0, "info": 0}
    assert verdict.valid is True


def test_faults_are_paired_by_their_id_or_their_name_and_last_to_the_end_without_one() -> None:
    script = Script()
    script.fault("kill", "start", id=1)
    script.fault("kill", "start", id=2)
    script.fault("kill", "injected", id=2)
    script.fault("kill", "end", id=1)
    script.fault("pause", "start")
    script.fault("pause", "end")
    found = sorted((f, start // S, end // S) for f, start, end in fault_windows(script.history()))
    assert found == [("kill", 1, 4), ("kill", 2, 6), ("pause", 5, 6)]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 10)), max_size=6), st.integers(0, 70))
@settings(max_examples=300)
def test_calm_time_is_all_time_outside_faults(faults: list[tuple[int, int]], until: int) -> None:
    windows = [(start, start + length) for start, length in faults]
    calm = CalmTimes(windows)
    slow = sum(not any(start <= at < end for start, end in windows) for at in range(until))
    assert calm.since_start_ns(until) == slow


def test_moments_next_to_a_fault_are_not_calm() -> None:
    calm = CalmTimes([(10, 20)])
    expected: dict[tuple[int, int], Json] = {
        (0, 9): True,
        (0, 10): False,
        (12, 13): False,
        (20, 25): False,
        (21, 25): True,
        (5, 30): False,
    }
    assert {span: calm.is_calm(*span) for span in expected} == expected
