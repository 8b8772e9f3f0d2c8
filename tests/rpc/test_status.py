"""Refusals as they come out of gRPC: a peer writes into its metadata what it likes."""

import pytest

from ottla.model.errors import ErrorCode
from ottla.rpc.status import refusal_of


def test_a_known_code_is_itself() -> None:
    assert refusal_of("FAILED_PRECONDITION", "why", "41").code is ErrorCode.NOT_CONTROLLER
    assert refusal_of("FAILED_PRECONDITION", "why", "-1").code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("text", ["--1", "", "9999", "\u00b2", "1" * 5_000, "41 "])
def test_a_code_that_is_none_says_no_more_than_the_status(text: str) -> None:
    assert refusal_of("UNAVAILABLE", None, text).code is ErrorCode.NETWORK_EXCEPTION
