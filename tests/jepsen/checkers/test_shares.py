"""A queue settles each record once; anomalies are found, and only where no order explains them."""

from collections.abc import Iterable, Sequence
from itertools import count
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.jepsen.checkers.share_reading import ACCEPT, FINAL_TYPES, REJECT, RELEASE, RENEW
from ottla.jepsen.checkers.shares import check_shares
from ottla.jepsen.checkers.verdict import RunFacts, Verdict
from ottla.jepsen.history import Event, EventKind, History, Json
from tests.jepsen.checkers.script import Script
from tests.jepsen.checkers.share_histories import BUGS, FACTS, GROUP, KEY, LIMIT, QueueHistory

MS = 1_000_000
SEEDS = st.integers(0, 1 << 32)
PLANT_SEEDS = 40
"""Histories of a planted bug, one of which the checker must refuse at least."""


def judged(history: History, facts: RunFacts = FACTS) -> Verdict:
    return check_shares(history, facts)


# ---- whole histories


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_a_legal_history_is_accepted(seed: int) -> None:
    verdict = judged(QueueHistory(seed).history())
    assert verdict.valid is True, verdict.findings
    assert verdict.figures["share_deliveries"] > 0


@pytest.mark.parametrize("bug", sorted(BUGS))
def test_a_planted_bug_is_reported_by_its_anomaly(bug: str) -> None:
    found: set[str] = set()
    for seed in range(PLANT_SEEDS):
        found |= set(judged(QueueHistory(seed, bug=bug).history()).findings_count)
    assert found
    assert found <= BUGS[bug]


# ---- an obvious slow form


class Span(NamedTuple):
    """One delivery: the times of its acquisition, and its confirmed acknowledgements."""

    member: str
    times: int
    """Delivery count."""
    earliest: int
    seen: int
    acks: tuple[tuple[str, int, int], ...]
    """Type, begin and end of each."""


class Moment(NamedTuple):
    """An event of the model that happens once, between two times."""

    span: int
    kind: str
    earliest: int
    latest: int


def is_explained(spans: Sequence[Span], limit: int) -> bool:
    """Return whether any order of all events agrees with the model, by trying every order."""
    moments = [
        [
            Moment(index, "acquire", span.earliest, span.seen),
            *(Moment(index, kind, begun, done) for kind, begun, done in span.acks),
        ]
        for index, span in enumerate(spans)
    ]

    def search(
        left: list[list[Moment]], now: int, owner: int | None, durable: int, is_settled: bool
    ) -> bool:
        if not any(left):
            return True
        is_last = owner is not None and not is_settled and spans[owner].times >= limit
        if is_last and search(left, now, None, durable, True):  # its lock ends unseen
            return True
        for index, one in enumerate(left):
            if not one:
                continue
            at = max(now, one[0].earliest)
            if at > one[0].latest:
                continue
            kind, span = one[0].kind, spans[index]
            rest = [each[1:] if place == index else each for place, each in enumerate(left)]
            after: tuple[int | None, int, bool]
            if kind == "acquire":
                # An earlier owner may have lost the record unseen.
                is_legal = not is_settled and durable < span.times <= limit
                after = (index, durable, False)
            else:
                # An acknowledgement below the start offset is confirmed without an effect.
                if is_settled:
                    if search(rest, at, owner, durable, True):
                        return True
                    continue
                is_legal = owner == index
                is_end = kind in FINAL_TYPES or span.times >= limit
                after = (index, durable, False) if kind == RENEW else (None, span.times, is_end)
            if is_legal and search(rest, at, *after):
                return True
        return False

    return search(moments, 0, None, 0, False)


def history_of(spans: Iterable[Span]) -> History:
    """Return the history of the deliveries of one record, with a process for each operation."""
    rows: list[tuple[int, int, int, EventKind, str, Json]] = []
    processes = count()
    orders = count()
    value = [["send", KEY, [0, 7]]]

    def add(begun: int, done: int, f: str, asked: Json, found: Json) -> None:
        process = next(processes)
        rows.append((begun, next(orders), process, EventKind.INVOKE, f, asked))
        rows.append((done, next(orders), process, EventKind.OK, f, found))

    add(0, 0, "send", [["send", KEY, 7]], value)
    for span in spans:
        of_member = {"group": GROUP, "member": span.member}
        record = [0, 7, span.times, span.seen - span.earliest]
        taken = {**of_member, "keys": {KEY: [record]}}
        add(span.earliest, span.seen, "take", {"group": GROUP}, taken)
        for kind, begun, done in span.acks:
            asked = {**of_member, "keys": {KEY: [[0, kind]]}}
            add(begun, done, "acknowledge", asked, {**of_member, "keys": {KEY: [[0, kind, True]]}})
    rows.sort(key=lambda row: row[:2])
    return History(
        Event(index, at * MS, process, kind, f, data)
        for index, (at, _, process, kind, f, data) in enumerate(rows)
    )


@st.composite
def some_spans(draw: st.DrawFn, count_max: int) -> list[Span]:
    """Draw deliveries of one record to different members, at times that often overlap."""
    spans = []
    for index in range(draw(st.integers(1, count_max))):
        earliest = draw(st.integers(0, 20))
        seen = now = earliest + draw(st.integers(0, 6))
        acks = []
        for kind in draw(st.sampled_from([(), (RENEW,)])) + draw(
            st.sampled_from([(), (ACCEPT,), (RELEASE,), (REJECT,)])
        ):
            begun = now + draw(st.integers(0, 8))
            now = begun + draw(st.integers(0, 4))
            acks.append((kind, begun, now))
        spans.append(Span(f"m{index}", draw(st.integers(1, 4)), earliest, seen, tuple(acks)))
    return spans


@settings(max_examples=600, deadline=None)
@given(some_spans(2))
def test_two_deliveries_are_anomalous_if_no_order_explains_them(spans: list[Span]) -> None:
    facts = RunFacts(delivery_count_limit=3)
    verdict = judged(history_of(spans), facts)
    assert (verdict.valid is True) is is_explained(spans, 3), verdict.findings


@settings(max_examples=400, deadline=None)
@given(some_spans(4))
def test_an_anomaly_of_several_deliveries_has_no_explanation(spans: list[Span]) -> None:
    facts = RunFacts(delivery_count_limit=3)
    verdict = judged(history_of(spans), facts)
    if verdict.valid is not True:
        assert not is_explained(spans, 3), verdict.findings


# ---- exact sequences


def took(script: Script, member: str, offset: int, times: int, age_ms: int | None = 0) -> None:
    """Note that a member received one record."""
    value = {"group": GROUP, "member": member, "keys": {KEY: [[offset, offset, times, age_ms]]}}
    script.does(0, "take", {"group": GROUP}, value)


def acknowledged(script: Script, member: str, offset: int, kind: str, outcome: Json = True) -> None:
    """Note an acknowledgement of one record."""
    asked = {"group": GROUP, "member": member, "keys": {KEY: [[offset, kind]]}}
    found = {"group": GROUP, "member": member, "keys": {KEY: [[offset, kind, outcome]]}}
    script.does(0, "acknowledge", asked, found)


def described(script: Script, start: int) -> None:
    """Note a start offset."""
    script.does(
        0, "start-offsets", {"group": GROUP}, {"group": GROUP, "keys": {KEY: [start, None]}}
    )


def sent(script: Script, count: int) -> None:
    """Note that records were sent, each with its offset as its value."""
    for offset in range(count):
        script.sends(0, offset, offset)


def anomalies(script: Script, facts: RunFacts = FACTS) -> dict[str, int]:
    return dict(judged(script.history(), facts).findings_count)


def test_a_record_that_was_never_delivered_is_lost_below_the_start_offset() -> None:
    script = Script()
    sent(script, 2)
    took(script, "a", 0, 1)
    acknowledged(script, "a", 0, ACCEPT)
    described(script, 1)
    assert anomalies(script) == {}
    described(script, 2)
    assert anomalies(script) == {"lost-record": 1}


def test_the_start_offset_may_pass_what_an_unknown_acknowledgement_settled() -> None:
    script = Script()
    sent(script, 2)
    for offset, outcome in ((0, None), (1, False)):
        took(script, "a", offset, 1)
        acknowledged(script, "a", offset, REJECT, outcome)
    described(script, 1)
    assert anomalies(script) == {}
    described(script, 2)
    assert anomalies(script) == {"start-passed-unsettled": 1}


def test_the_start_offset_passes_a_record_whose_last_delivery_ended() -> None:
    script = Script()
    sent(script, 1)
    took(script, "a", 0, LIMIT)
    described(script, 1)
    assert anomalies(script) == {}


def test_the_start_offset_never_goes_back() -> None:
    script = Script()
    sent(script, 2)
    for offset in range(2):
        took(script, "a", offset, 1)
        acknowledged(script, "a", offset, ACCEPT)
    described(script, 2)
    described(script, 1)
    assert anomalies(script) == {"start-went-back": 1}


def test_a_renewed_lock_lasts_longer() -> None:
    for outcome, found in ((True, {}), (None, {}), (False, {"acknowledged-after-lock": 1})):
        script = Script()
        sent(script, 1)
        took(script, "a", 0, 1)
        acknowledged(script, "a", 0, RENEW, outcome)
        script.now_ns += 4_500 * MS
        acknowledged(script, "a", 0, ACCEPT)
        assert anomalies(script) == found
        # Clocks that were moved prove nothing.
        assert anomalies(script, RunFacts(nemeses=("clock",), lock_ms=4_000)) == {}


def test_a_delivery_without_an_age_proves_no_order() -> None:
    script = Script()
    sent(script, 1)
    took(script, "a", 0, 1)
    acknowledged(script, "a", 0, ACCEPT)
    took(script, "b", 0, 1, None)
    assert anomalies(script) == {}
    script.does(0, "join", {"group": GROUP}, {"group": GROUP, "member": "c"})
    took(script, "c", 0, 2, None)
    assert anomalies(script) == {"delivered-after-settled": 1}


def test_records_have_the_values_that_were_sent() -> None:
    script = Script()
    sent(script, 2)
    for offset, value in ((0, 1), (1, 9), (2, 1)):
        record = {KEY: [[offset, value, 1, 0]]}
        found = {"group": GROUP, "member": "a", "keys": record}
        script.does(0, "take", {"group": GROUP}, found)
    assert set(anomalies(script)) == {
        "inconsistent-value",
        "invented-record",
        "duplicate-record",
    }


def test_the_limit_bounds_the_count() -> None:
    script = Script()
    sent(script, 1)
    took(script, "a", 0, LIMIT + 1)
    assert anomalies(script) == {"count-above-limit": 1}


def test_rejected_records_become_dead_letters_and_accepted_ones_do_not() -> None:
    for letters, found in (
        ([1], {}),
        ([], {"dead-letter-lost": 1}),
        ([0, 1], {"dead-letter-of-accepted": 1}),
    ):
        script = Script()
        sent(script, 2)
        for offset, kind in enumerate((ACCEPT, REJECT)):
            took(script, "a", offset, 1)
            acknowledged(script, "a", offset, kind)
        # Without a reading of them nothing is known.
        assert anomalies(script) == {}
        keys = {KEY: letters} if letters else {}
        script.does(0, "letters", {"group": GROUP}, {"group": GROUP, "keys": keys})
        assert anomalies(script) == found
