"""Bytes, durations and times as text."""

from datetime import datetime

import pytest

from ottla.model.amounts import amount, duration, moment

INT64_MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1_023, "1023 bytes"),
        (1_536, "1.5 KiB"),
        (150 << 20, "150 MiB"),
        (9 << 30, "9 GiB"),
        (INT64_MAX, "8,388,608 TiB"),
    ],
)
def test_bytes_have_the_unit_that_keeps_three_digits(size_bytes: int, text: str) -> None:
    assert amount(size_bytes) == text


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (12_345, "12.3 s"),
        (119_999, "119.9 s"),
        (120_000, "2 min"),
        (7_200_000, "2 h"),
        (10**9, "11 d"),
        (INT64_MAX, "106,751,991,167 d"),
    ],
)
def test_a_duration_has_the_largest_unit_of_which_there_are_two(span_ms: int, text: str) -> None:
    assert duration(span_ms) == text


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_785_499_200_000, "2026-07-31T12:00:00Z"),
        (1_785_499_200_007, "2026-07-31T12:00:00.007Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_a_time_can_be_typed_again(time_ms: int, text: str) -> None:
    assert moment(time_ms) == text
    assert round(datetime.fromisoformat(text).timestamp() * 1_000) == time_ms


@pytest.mark.parametrize("time_ms", [-2, 253_402_300_800_000, INT64_MAX])
def test_a_time_outside_of_the_calendar_is_its_number(time_ms: int) -> None:
    assert moment(time_ms) == f"{time_ms} ms"
