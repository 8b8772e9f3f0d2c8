import logging

import pytest

from ottla.model.unexpected_errors import KINDS_MAX, LINES_PER_KIND_MAX, UnexpectedErrors


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_the_first_error_of_a_kind_has_a_traceback_and_the_next_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors = UnexpectedErrors(logging.getLogger("ottla.test"))
    for number in range(3):
        errors.note("request", f"Metadata of client {number}", raised(RuntimeError("no")))
    assert errors.counts == {"request": 3}
    assert [record.exc_info is not None for record in caplog.records] == [True, False, False]
    assert "Metadata of client 2" in caplog.records[2].getMessage()


def test_a_repeated_error_stops_writing_and_is_still_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors = UnexpectedErrors()
    for _ in range(2 * LINES_PER_KIND_MAX):
        errors.note("partition", "t-0", raised(ValueError("again")))
    assert len(caplog.records) == LINES_PER_KIND_MAX
    assert errors.counts["partition"] == 2 * LINES_PER_KIND_MAX


def test_errors_of_unbounded_kinds_take_bounded_memory(caplog: pytest.LogCaptureFixture) -> None:
    errors = UnexpectedErrors()
    for number in range(KINDS_MAX + 10):
        errors.note(f"owner-{number}", "", ValueError())
    assert len(caplog.records) == KINDS_MAX


def test_other_owners_and_other_types_are_other_kinds(caplog: pytest.LogCaptureFixture) -> None:
    errors = UnexpectedErrors()
    errors.note("request", "a", raised(ValueError()))
    errors.note("group", "a", raised(ValueError()))
    errors.note("request", "a", raised(KeyError()))
    assert all(record.exc_info is not None for record in caplog.records)
