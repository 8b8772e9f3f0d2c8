"""No producer id is allocated twice."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.jepsen.checkers.producer_ids import check_producer_ids
from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.history import EventKind, Json
from tests.jepsen.checkers.script import Script


def given_ids(*ids: tuple[int, int, str | None]) -> dict[str, int]:
    script = Script()
    for producer_id, epoch, name in ids:
        extra: dict[str, Json] = {} if name is None else {"transactional_id": name}
        script.does(0, "init", None, [producer_id, epoch], **extra)
    return dict(check_producer_ids(script.history(), RunFacts()).findings_count)


@given(st.lists(st.integers(0, 1_000), unique=True, min_size=1), st.data())
def test_an_id_that_is_given_twice_is_reported_and_nothing_else(
    ids: list[int], data: st.DataObject
) -> None:
    each: list[tuple[int, int, str | None]] = [(id_, 0, None) for id_ in ids]
    assert given_ids(*each) == {}
    again = data.draw(st.sampled_from(each))
    place = data.draw(st.integers(0, len(each)))
    assert given_ids(*each[:place], again, *each[place:]) == {"duplicate-producer-id": 1}


def test_a_transactional_id_keeps_its_producer_id_with_epochs_that_rise() -> None:
    assert given_ids((1, 0, "a"), (1, 1, "a"), (2, 0, "b"), (3, 0, "a")) == {}
    assert given_ids((1, 0, "a"), (1, 1, "b")) == {"duplicate-producer-id": 1}
    assert given_ids((1, 0, "a"), (1, 0, None)) == {"duplicate-producer-id": 1}
    assert given_ids((1, 1, "a"), (1, 0, "a")) == {"epoch-went-back": 1}
    assert given_ids((1, 1, "a"), (1, 1, "a")) == {"epoch-went-back": 1}


def test_epochs_asked_for_at_once_may_come_in_any_order() -> None:
    script = Script()
    script.begins(0, "init", None, transactional_id="a")
    script.does(1, "init", None, [1, 1], transactional_id="a")
    script.ends(0, [1, 0])
    assert check_producer_ids(script.history(), RunFacts()).valid is True


def test_a_producer_id_without_an_answer_was_given_to_no_producer() -> None:
    script = Script()
    script.does(0, "init", None, [1, 0])
    script.does(0, "init", None, [1, 0], EventKind.FAIL)
    script.does(0, "init", None, [1, 0], EventKind.INFO)
    script.does(1, "init", None, None)
    verdict = check_producer_ids(script.history(), RunFacts())
    assert verdict.valid is True
    assert verdict.figures["given"] == 1
