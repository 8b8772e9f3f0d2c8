"""A malformed answer of a broker is one of the client's own errors."""

from enum import Enum

import pytest

from ottla.client.network.answer_checks import known, only
from ottla.model.errors import ErrorCode, ProtocolError, code_of


class Colour(Enum):
    RED = 1
    NONE = 0


def test_the_one_row_that_was_asked_for_is_returned() -> None:
    assert only(["row"], "topic") == "row"


@pytest.mark.parametrize("rows", [[], ["a", "b"]])
def test_none_or_several_rows_are_not_the_protocol(rows: list[str]) -> None:
    with pytest.raises(ProtocolError, match=f"one topic was requested, and {len(rows)} came"):
        only(rows, "topic")


def test_a_value_of_a_later_release_is_otherwise() -> None:
    assert known(Colour, 1, Colour.NONE) is Colour.RED
    assert known(Colour, 99, Colour.NONE) is Colour.NONE


def test_a_code_of_a_later_release_is_an_unknown_error() -> None:
    assert code_of(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(-1) is code_of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
