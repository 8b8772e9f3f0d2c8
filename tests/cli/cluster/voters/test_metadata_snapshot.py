"""`ottla quorum snapshot` against a played broker."""

import json
from argparse import Namespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.cli.cluster.voters.metadata_snapshot import snapshot
from ottla.model.errors import ErrorCode, RefusedError
from ottla.wire.messages.write_snapshot_response import WriteSnapshotResponse

WRITTEN = WriteSnapshotResponse(
    error_message=None,
    node_id=101,
    end_offset=1_234,
    epoch=5,
    size_bytes=2_048,
    latest_end_offset=1_234,
    log_start_offset=7,
)


class PlayedBroker:
    """A broker that gives one response after some time."""

    def __init__(self, answer: WriteSnapshotResponse, after_s: float = 0) -> None:
        self._answer = answer
        self._after_s = after_s
        self.asked: list[bool] = []
        self.cluster = self

    async def request(self, request: Any, kind: Any) -> WriteSnapshotResponse:
        self.asked.append(request.validate_only)
        await trio.sleep(self._after_s)
        return self._answer


async def test_the_end_and_size_of_the_snapshot_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker: Any = PlayedBroker(WRITTEN)
    assert await snapshot(broker, Namespace(dry_run=False, format="table")) == 0
    assert broker.asked == [False]
    out = capsys.readouterr().out
    assert "controller 101 has written" in out
    assert "before offset 1234" in out


async def test_a_dry_run_asks_for_nothing_to_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    broker: Any = PlayedBroker(WRITTEN)
    assert await snapshot(broker, Namespace(dry_run=True, format="json")) == 0
    assert broker.asked == [True]
    found = json.loads(capsys.readouterr().out)
    assert (found["written"], found["latest_end_offset"]) == (False, 1_234)
    assert found["size_bytes"] is None


async def test_a_long_snapshot_is_noted(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    broker: Any = PlayedBroker(WRITTEN, after_s=10)
    assert await snapshot(broker, Namespace(dry_run=False, format="table")) == 0
    assert capsys.readouterr().err.count("is being written") == 3


async def test_a_full_disk_is_an_error() -> None:
    refused = WriteSnapshotResponse(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message="It has no room."
    )
    broker: Any = PlayedBroker(refused)
    with pytest.raises(RefusedError, match="no room"):
        await snapshot(broker, Namespace(dry_run=False, format="table"))
