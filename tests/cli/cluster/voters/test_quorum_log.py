"""`ottla quorum log` against a played broker."""

import json
from argparse import Namespace
from typing import Any

import pytest
from trio.testing import MockClock

from ottla.cli.cluster.voters.quorum_log import log
from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.wire.messages.describe_metadata_changes_response import (
    DescribeMetadataChangesResponse,
    MetadataChange,
)


class PlayedBroker:
    """A broker whose responses are given in advance."""

    def __init__(self, *answers: DescribeMetadataChangesResponse | Exception) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[int, int]] = []
        self.cluster = self

    async def request(self, request: Any, kind: Any) -> DescribeMetadataChangesResponse:
        self.asked.append((request.start_offset, request.wait_ms))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def answer_of(*offsets: int, next_offset: int, end_offset: int) -> DescribeMetadataChangesResponse:
    changes = [
        MetadataChange(
            offset=at, epoch=3, timestamp_ms=1_000 * at, kind="config", text=f"change {at}"
        )
        for at in offsets
    ]
    return DescribeMetadataChangesResponse(
        error_message=None, next_offset=next_offset, end_offset=end_offset, changes=changes
    )


def options(**given: Any) -> Namespace:
    usual = {"follow": False, "start": None, "max": None, "format": "table"}
    return Namespace(**{**usual, **given})


async def test_the_whole_log_is_printed_in_pieces(capsys: pytest.CaptureFixture[str]) -> None:
    broker: Any = PlayedBroker(
        answer_of(5, 6, next_offset=7, end_offset=9), answer_of(8, next_offset=9, end_offset=9)
    )
    assert await log(broker, options()) == 0
    assert broker.asked == [(-2, 0), (7, 0)]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["5", "1970-01-01T00:00:05Z", "change", "5"]
    assert len(lines) == 3


async def test_following_goes_on_after_a_lost_connection(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    broker: Any = PlayedBroker(
        answer_of(next_offset=9, end_offset=9),
        ConnectionLostError("lost"),
        ConnectionLostError("lost"),
        answer_of(9, 10, 11, next_offset=12, end_offset=12),
    )
    assert await log(broker, options(follow=True, max=2, format="json")) == 0
    assert [start for start, _ in broker.asked] == [-1, 9, 9, 9]
    out, err = capsys.readouterr()
    assert err.count("lost; trying again") == 1
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["offset"] for row in rows] == [9, 10]


async def test_an_offset_that_is_gone_is_refused_with_the_cure() -> None:
    refused = DescribeMetadataChangesResponse(
        error_code=ErrorCode.OFFSET_OUT_OF_RANGE,
        error_message="It has 5 to 9.",
        next_offset=0,
        end_offset=0,
        changes=[],
    )
    broker: Any = PlayedBroker(refused)
    with pytest.raises(RefusedError, match="--from earliest"):
        await log(broker, options(start="2"))


async def test_a_broker_that_never_answered_is_not_asked_again() -> None:
    broker: Any = PlayedBroker(ConnectionLostError("hung up"))
    with pytest.raises(ConnectionLostError):
        await log(broker, options(follow=True))


async def test_another_start_is_refused() -> None:
    broker: Any = PlayedBroker()
    with pytest.raises(ConfigError, match="earliest or latest"):
        await log(broker, options(start="newest"))
