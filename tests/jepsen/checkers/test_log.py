"""The log checker passes valid histories and names exactly the anomaly of each invalid one."""

from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ottla.jepsen.checkers import log_figures, log_order, log_values
from ottla.jepsen.checkers.log import ALLOWED, check_log
from ottla.jepsen.checkers.log_reading import LogReading
from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.history import EventKind, Json
from tests.jepsen.checkers.queue_histories import HistoryWeather, queue_history
from tests.jepsen.checkers.queue_plants import PLANTS, planted
from tests.jepsen.checkers.script import Script

WEATHERS = st.builds(
    HistoryWeather,
    operation_count=st.integers(1, 100),
    thread_count=st.integers(1, 5),
    is_idempotent=st.booleans(),
    has_transactions=st.booleans(),
    has_subscribers=st.booleans(),
    trouble=st.sampled_from((0.0, 0.1, 0.4)),
    gap=st.sampled_from((0.0, 0.3)),
)
SEEDS = st.integers(0, 1 << 32)

FAST = HistoryWeather(
    operation_count=80, is_idempotent=True, has_subscribers=False, trouble=0.3, gap=0.3
)
"""Weather in which nearly every anomaly has a place."""


@given(WEATHERS, SEEDS)
@settings(max_examples=150, deadline=None)
def test_a_history_of_logs_that_keep_every_promise_passes(
    weather: HistoryWeather, seed: int
) -> None:
    verdict = check_log(queue_history(Random(seed), weather), RunFacts())
    assert verdict.valid is True, verdict.reason
    assert set(verdict.findings_count) <= ALLOWED


@pytest.mark.parametrize("anomaly", sorted(PLANTS))
@given(seed=SEEDS)
@settings(max_examples=25, deadline=None)
def test_one_planted_anomaly_is_reported_and_nothing_else(anomaly: str, seed: int) -> None:
    history = planted(anomaly, queue_history(Random(seed), FAST), Random(seed))
    assume(history is not None)
    assert history is not None
    verdict = check_log(history, RunFacts())
    assert set(verdict.findings_count) == {anomaly}
    assert verdict.valid is (anomaly in ALLOWED)
    assert all(finding.anomaly == anomaly for finding in verdict.findings)
    assert all(0 <= index < len(history.events) for index in verdict.findings[0].operations)


def test_every_anomaly_finds_a_place_in_some_history() -> None:
    for anomaly in PLANTS:
        tries = (planted(anomaly, queue_history(Random(n), FAST), Random(n)) for n in range(300))
        assert any(history is not None for history in tries), anomaly


# ---- histories written by hand


def counts(script: Script, facts: RunFacts | None = None) -> dict[str, int]:
    return dict(check_log(script.history(), facts or RunFacts()).findings_count)


def test_what_was_never_read_without_final_reads_is_unknown() -> None:
    script = Script()
    script.sends(0, 1, 0)
    assert check_log(script.history(), RunFacts()).valid is True, "no client was to read anything"
    script.polls(1, [])
    verdict = check_log(script.history(), RunFacts())
    assert verdict.valid == "unknown"
    assert verdict.figures["unseen"] == 1
    script.polls(1, [[0, 1]])
    assert check_log(script.history(), RunFacts()).valid is True


def test_acknowledgements_of_a_leader_alone_promise_nothing() -> None:
    script = Script()
    script.sends(0, 1, 0, acks="1")
    script.sends(0, 2, 1, acks="1")
    script.polls(1, [[0, 9], [1, 2]], final=True)
    script.does(2, "send", [["send", "q-0", 9]], kind=EventKind.INFO)
    assert check_log(script.history(), RunFacts()).valid is True
    assert check_log(script.history(), RunFacts(acks="1")).valid is True
    promised = Script()
    promised.does(2, "send", [["send", "q-0", 9]], kind=EventKind.INFO)
    promised.sends(0, 1, 0)
    promised.polls(1, [[0, 9]], final=True)
    assert set(counts(promised)) == {"inconsistent-offsets", "lost-write"}
    assert counts(promised, RunFacts(acks="1")) == {}


@pytest.mark.parametrize(
    ("extra", "name"),
    [
        ({"idempotent": True}, "duplicate"),
        ({"idempotent": False}, "duplicate-of-a-retry"),
        ({"idempotent": False, "retries": 0}, "duplicate"),
    ],
)
def test_a_record_may_be_there_twice_only_if_its_producer_may_have_repeated_it(
    extra: dict[str, Json], name: str
) -> None:
    script = Script()
    script.sends(0, 1, 0, **extra)
    script.polls(1, [[0, 1], [1, 1]])
    assert counts(script) == {name: 1}


def test_an_acknowledged_part_of_an_operation_of_unknown_end_counts() -> None:
    script = Script()
    asked = [["send", "q-0", 1], ["send", "q-0", 2]]
    script.does(0, "send", asked, [["send", "q-0", [0, 1]], ["send", "q-0", 2]], EventKind.INFO)
    script.sends(1, 3, 1)
    script.polls(2, [[1, 3]], final=True)
    assert counts(script) == {"lost-write": 1}


def test_a_consumer_goes_on_where_it_was_only_if_it_kept_the_key() -> None:
    kept, new, final, rewound, rebalanced = (Script() for _ in range(5))
    for script in (kept, new, final, rewound, rebalanced):
        script.sends(0, 1, 0)
        script.sends(0, 2, 1)
        script.does(1, "assign", ["q-0"])
        script.polls(1, [[0, 1], [1, 2]])
    kept.does(1, "assign", ["q-0", "q-1"])
    new.does(1, "assign", ["q-1"])
    new.does(1, "assign", ["q-0"])
    final.does(1, "assign", ["q-0"], final=True)
    for script in (kept, new, final):
        script.polls(1, [[0, 1]])
    rewound.polls(1, [[0, 1]], rewound=["q-0"])
    rebalanced.polls(1, [[0, 1]], rebalanced=["q-0"])
    assert counts(kept) == {"nonmonotonic-poll": 1}
    for script in (new, final, rewound, rebalanced):
        assert counts(script) == {}


def test_a_group_may_move_a_subscriber_but_not_within_one_poll() -> None:
    script = Script()
    for value in range(4):
        script.sends(0, value, value)
    script.does(1, "subscribe", ["q"])
    script.polls(1, [[0, 0], [1, 1]])
    script.polls(1, [[1, 1], [2, 2]])
    script.polls(2, [[0, 0], [1, 1], [2, 2], [3, 3]])
    allowed = {"nonmonotonic-poll-subscribed": 1}
    assert counts(script) == allowed
    script.polls(1, [[1, 1], [3, 3]], rebalanced=["q-0"])
    assert counts(script) == {"nonmonotonic-poll-subscribed": 1}
    script.polls(1, [[1, 1], [3, 3]])
    assert counts(script) == {**allowed, "int-poll-skip": 1}
    script.does(3, "subscribe", ["q"])
    script.polls(3, [[0, 0]])
    script.polls(3, [[3, 3]])
    assert counts(script) == {**allowed, "int-poll-skip": 1, "poll-skip-subscribed": 1}
    assert check_log(script.history(), RunFacts()).valid is False


def test_a_process_that_follows_a_subscribed_one_is_subscribed() -> None:
    script = Script()
    for value in range(3):
        script.sends(0, value, value)
    script.polls(1, [[0, 0], [1, 1]], mode="subscribe")
    script.polls(1, [[1, 1], [2, 2]], mode="subscribe")
    assert counts(script) == {"nonmonotonic-poll-subscribed": 1}


def test_records_of_a_failed_poll_are_checked_but_do_not_count_as_read() -> None:
    script = Script()
    script.sends(0, 1, 0)
    script.sends(0, 2, 1)
    script.does(1, "poll", [["poll"]], [["poll", {"q-0": [[0, 1]]}]], EventKind.FAIL)
    script.polls(1, [[1, 2]], final=True)
    assert counts(script) == {"lost-write": 1}
    script.does(2, "poll", [["poll"]], [["poll", {"q-0": [[1, 1]]}]], EventKind.FAIL)
    assert set(counts(script)) == {"lost-write", "duplicate", "inconsistent-offsets"}


def test_what_a_failed_poll_saw_must_not_be_cut_off_either() -> None:
    script = Script()
    script.does(0, "send", [["send", "q-0", 7]], kind=EventKind.INFO)
    script.does(1, "poll", [["poll"]], [["poll", {"q-0": [[0, 7]]}]], EventKind.FAIL)
    script.polls(2, [], final=True)
    assert counts(script) == {"truncated-read": 1}


def test_a_record_of_unknown_place_is_lost_once_a_later_one_was_read() -> None:
    script = Script()
    script.sends(0, 1, None)
    script.sends(1, 2, 5)
    script.polls(2, [], final=True)
    assert counts(script) == {"unseen": 2}
    script.polls(2, [[5, 2]], final=True)
    assert counts(script) == {"lost-write": 1}


@pytest.mark.parametrize("kind", [EventKind.INFO, EventKind.FAIL])
def test_a_transaction_must_have_committed_once_a_part_of_it_was_seen(kind: EventKind) -> None:
    asked = [["send", "q-0", 1], ["send", "q-0", 2]]
    result = [["send", "q-0", [0, 1]], ["send", "q-0", [1, 2]]]
    script = Script()
    script.does(0, "txn", asked, result, kind)
    script.sends(1, 3, 3)
    script.polls(2, [[3, 3]], final=True)
    assert counts(script) == {}
    script.polls(3, [[1, 2], [3, 3]], final=True)
    assert counts(script) == {EventKind.INFO: {"lost-write": 1}, EventKind.FAIL: {"G1a": 1}}[kind]


def test_an_offset_that_was_given_before_is_out_of_order_too() -> None:
    own, others, one = Script(), Script(), Script()
    own.sends(0, 1, 4)
    own.sends(0, 2, 4)
    others.sends(0, 1, 4)
    others.sends(1, 2, 4)
    asked = [["send", "q-0", 1], ["send", "q-0", 2]]
    one.does(0, "send", asked, [["send", "q-0", [4, 1]], ["send", "q-0", [4, 2]]])
    assert counts(own) == {"inconsistent-offsets": 1, "nonmonotonic-send": 1}
    assert counts(others) == {"inconsistent-offsets": 1, "realtime-order": 1}
    assert counts(one) == {"inconsistent-offsets": 1, "int-nonmonotonic-send": 1}


def test_a_retry_without_idempotence_may_be_overtaken() -> None:
    script = Script()
    asked = [["send", "q-0", 1], ["send", "q-0", 2]]
    result = [["send", "q-0", [1, 1]], ["send", "q-0", [0, 2]]]
    script.does(0, "send", asked, result, idempotent=False)
    script.polls(1, [[0, 2], [1, 1]])
    assert counts(script) == {"int-nonmonotonic-send-of-retries": 1}
    assert check_log(script.history(), RunFacts()).valid is True


def test_an_allowed_anomaly_is_reported_and_does_not_fail() -> None:
    script = Script()
    script.polls(0, [[0, 7]])
    assert check_log(script.history(), RunFacts()).valid is False
    verdict = check_log(script.history(), RunFacts(allowed=frozenset({"phantom-read"})))
    assert verdict.valid is True
    assert verdict.findings_count == {"phantom-read": 1}


def test_a_value_sent_twice_is_a_mistake_of_the_workload() -> None:
    script = Script()
    script.sends(0, 1, 0)
    script.sends(1, 1, 1)
    with pytest.raises(ValueError, match="unique"):
        check_log(script.history(), RunFacts())


def test_allowed_names_are_those_of_the_rules() -> None:
    assert ALLOWED == log_order.ALLOWED | log_values.ALLOWED


# ---- figures


def test_lag_is_how_long_the_next_record_had_been_there_when_the_poll_began() -> None:
    script = Script()
    script.sends(0, 1, 0)  # known at 2 s
    script.polls(1, [[0, 1]])  # 3 s to 4 s
    script.sends(0, 2, 1)  # known at 6 s
    script.polls(1, [])  # begins at 7 s and sees nothing of it
    script.polls(1, [[1, 2]])
    lags = log_figures.realtime_lags(LogReading(script.history(), RunFacts()))
    assert [lag.lag_ns // 1_000_000_000 for lag in lags] == [0, 1, 0]


def test_unseen_rises_with_acknowledgements_and_falls_with_reads() -> None:
    script = Script()
    script.sends(0, 1, 0)
    script.sends(0, 2, 1)
    script.polls(1, [[0, 1]])
    script.polls(2, [[0, 1], [1, 2]])
    changes = log_figures.unseen_over_time(LogReading(script.history(), RunFacts()))
    assert [(time_ns // 1_000_000_000, count) for time_ns, count in changes] == [
        (2, 1),
        (4, 2),
        (6, 1),
        (8, 0),
    ]


def test_records_that_subscribers_consumed_are_counted_by_how_often() -> None:
    script = Script()
    for value in range(2):
        script.sends(0, value, value)
    script.does(1, "subscribe", ["q"])
    script.polls(1, [[0, 0], [1, 1]])
    script.does(2, "subscribe", ["q"])
    script.polls(2, [[1, 1]])
    script.does(3, "assign", ["q-0"])
    script.polls(3, [[0, 0], [1, 1]])
    verdict = check_log(script.history(), RunFacts())
    assert verdict.figures["consume_counts"] == {"1": 1, "2": 1}


def test_polls_of_members_are_judged_with_their_group() -> None:
    script = Script()
    script.sends(0, 1, 0)
    result = {"group": "g", "member": "m", "generation": 1, "keys": {"q-0": [[0, 9]]}}
    script.does(1, "poll", {"group": "g"}, result)
    assert counts(script) == {}
