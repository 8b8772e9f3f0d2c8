"""Refusals parsed from gRPC: a peer may send any metadata."""

import pytest

from ottla.model.errors import ErrorCode
from ottla.rpc.status import LostCallError, refusal_of


def test_a_known_code_is_itself() -> None:
    assert refusal_of("FAILED_PRECONDITION", "why", "41").code is ErrorCode.NOT_CONTROLLER
    assert refusal_of("FAILED_PRECONDITION", "why", "-1").code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("text", ["--1", "", "9999", "\u00b2", "1" * 5_000, "41 "])
def test_a_code_that_is_none_says_no_more_than_the_status(text: str) -> None:
    assert refusal_of("UNAVAILABLE", None, text).code is ErrorCode.NETWORK_EXCEPTION


def test_a_connection_that_broke_during_a_call_is_distinguished_from_one_that_was_never_made() -> (
    None
):
    """A request that was sent may have been executed; one that was never sent was not."""
    for details in ("Socket closed", "recvmsg:Connection reset by peer", None):
        refusal = refusal_of("UNAVAILABLE", details, None)
        assert isinstance(refusal, LostCallError)
        assert refusal.code is ErrorCode.NETWORK_EXCEPTION
    for details in (
        "failed to connect to all addresses; last error: refused",
        "Stream removed (RST_STREAM (Received RST_STREAM with error code 7))",
    ):
        assert not isinstance(refusal_of("UNAVAILABLE", details, None), LostCallError)
    closing = refusal_of("FAILED_PRECONDITION", "the server is closing", "13")
    assert not isinstance(closing, LostCallError)


def test_causes_are_in_plain_words() -> None:
    refused = "failed to connect to all addresses; last error: UNKNOWN: ipv6:%5B::1%5D:19503: "
    refused += "Failed to connect to remote host: Connection refused"
    message = refusal_of("UNAVAILABLE", refused, None).message
    assert message == "failed to connect: connection refused"
    assert refusal_of("DEADLINE_EXCEEDED", None, None).message == "no answer in time"
