"""Records that may be gone from a compacted log, by the reads and by the logs of its replicas."""

from collections.abc import Iterable

import pytest

from ottla.jepsen.checkers.compacted import differing_key, is_compacted, record_key_of
from ottla.jepsen.checkers.log import check_log
from ottla.jepsen.checkers.verdict import RunFacts
from ottla.model.ids import Epoch, Offset, ProducerId
from ottla.wire.batch_builder import ControlType, build_batch, build_end_transaction_marker
from tests.jepsen.checkers.script import Script

TWO_KEYS = RunFacts(record_key_count=2)
"""Even values are of one key, odd ones of the other."""


def counts(script: Script, facts: RunFacts = TWO_KEYS) -> dict[str, int]:
    return dict(check_log(script.history(), facts).findings_count)


def sent(*values: int) -> Script:
    """Return a history in which values were acknowledged, each at its own number."""
    script = Script()
    for value in values:
        script.sends(0, value, value)
    return script


def records(*values: int) -> list[list[int]]:
    return [[value, value] for value in values]


def test_a_value_may_be_gone_once_a_later_one_of_its_key_was_seen() -> None:
    script = sent(0, 1, 2, 3, 4)
    script.polls(1, records(3, 4), final=True)

    assert counts(script) == {}
    assert counts(script, RunFacts()) == {"lost-write": 3}


@pytest.mark.parametrize(
    ("seen", "anomalies"),
    [
        pytest.param((0, 1, 2, 4), {"lost-write": 1}, id="the last of a key, passed by"),
        pytest.param((2, 3), {"unseen": 1}, id="the last of all"),
        pytest.param((0, 1), {"unseen": 3}, id="what later ones supersede that are not seen"),
        pytest.param((), {"unseen": 5}, id="all"),
    ],
)
def test_the_last_value_of_a_key_may_not_be_gone(
    seen: tuple[int, ...], anomalies: dict[str, int]
) -> None:
    script = sent(0, 1, 2, 3, 4)
    script.polls(1, records(*seen), final=True)

    assert counts(script) == anomalies


def test_a_value_of_unknown_place_may_be_gone_unless_all_of_its_key_was_there_before() -> None:
    script = Script()
    script.sends(0, 2, 0)
    script.sends(0, 4, None)
    script.polls(1, [[0, 2]], final=True)
    assert counts(script) == {"unseen": 1}

    script.sends(0, 6, 2)
    script.polls(1, [[2, 6]], final=True)
    assert counts(script) == {}


def test_a_consumer_steps_over_nothing_but_what_was_superseded_when_it_read() -> None:
    script = sent(0, 1, 2, 3)
    script.polls(1, records(0, 1, 2, 3))
    script.polls(2, records(0))
    script.polls(2, records(2, 3))
    assert counts(script) == {}, "3 supersedes 1"

    script.polls(3, records(0))
    script.polls(3, records(1, 3))
    assert counts(script) == {"int-poll-skip": 1}, "nothing supersedes 2"

    script.sends(0, 4, 4)
    script.polls(1, records(4))
    assert counts(script) == {"int-poll-skip": 1}, "4 was sent too late"


def test_values_of_both_engines_have_a_key() -> None:
    assert record_key_of(17, 8) == 1
    assert record_key_of("producer-1.3/17", 8) == 1


def test_logs_are_known_by_their_names() -> None:
    names = ("__consumer_offsets-3", "compacted-q0-1", "t-compacted-q0-1", "orders-1")
    assert [is_compacted(name) for name in names] == [True, True, True, False]


def log_of(pairs: Iterable[tuple[int, bytes, bytes | None]]) -> dict[int, bytes]:
    return {
        offset: bytes(build_batch([(0, key, value)], base_offset=Offset(offset)))
        for offset, key, value in pairs
    }


FULL = ((0, b"a", b"0"), (1, b"b", b"1"), (2, b"a", b"2"), (3, b"b", None), (4, b"c", b"4"))


@pytest.mark.parametrize(
    ("gone", "end", "key"),
    [
        ((), 5, None),
        ((0, 1), 5, None),
        ((0, 1, 3), 5, None),
        ((2,), 5, b"a"),
        ((0, 2), 5, b"a"),
        ((3,), 5, b"b"),
        ((4,), 5, b"c"),
        ((0,), 2, None),
        ((0, 1, 3), 3, None),
        ((1,), 3, None),
    ],
)
def test_replicas_have_the_same_last_values_whatever_each_compacted(
    gone: tuple[int, ...], end: int, key: bytes | None
) -> None:
    full, thinned = log_of(FULL), log_of(one for one in FULL if one[0] not in gone)

    assert differing_key(full, thinned, end) == key
    assert differing_key(thinned, full, end) == key


@pytest.mark.parametrize("control_type", [ControlType.ABORT, ControlType.COMMIT])
@pytest.mark.parametrize("is_marker_gone", [False, True])
def test_records_of_an_aborted_transaction_are_no_last_values(
    control_type: ControlType, is_marker_gone: bool
) -> None:
    def transaction(offset: int, value: bytes, end: ControlType) -> dict[int, bytes]:
        batch = build_batch(
            [(0, b"a", value)],
            base_offset=Offset(offset),
            producer_id=ProducerId(7),
            producer_epoch=0,
            base_sequence=offset,
            is_transactional=True,
        )
        marker = build_end_transaction_marker(
            end,
            timestamp_ms=0,
            producer_id=ProducerId(7),
            producer_epoch=0,
            coordinator_epoch=Epoch(0),
            base_offset=Offset(offset + 1),
        )
        return {offset: bytes(batch), offset + 1: bytes(marker)}

    committed = transaction(0, b"kept", ControlType.COMMIT)
    full = committed | transaction(2, b"new", control_type) | log_of([(4, b"c", b"4")])
    thinned = {at: data for at, data in full.items() if at != 2}
    if is_marker_gone:
        del thinned[3]

    key = b"a" if control_type is ControlType.COMMIT else None
    assert differing_key(full, thinned, 5) == key
    assert differing_key(thinned, full, 5) == key
