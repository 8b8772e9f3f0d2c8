"""Errors of reads of copied segments have Kafka's codes."""

import pytest

from ottla.broker.tier.remote_reads import (
    NOTHING_COPIED,
    NoRemoteReads,
    RemoteNotFoundError,
    RemoteNotReadyError,
    RemoteReadError,
    RemoteReads,
    code_of,
)
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, TopicIdPartition
from ottla.storage.tier.store_seam import StoreError, StoreRefusedError
from tests.broker.tier.fake_remote_reads import FakeRemoteReads

PARTITION = TopicIdPartition(ZERO_UUID, 0)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RemoteNotFoundError("x"), ErrorCode.OFFSET_OUT_OF_RANGE),
        (RemoteNotReadyError("x"), ErrorCode.REPLICA_NOT_AVAILABLE),
        (StoreError("x"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (StoreRefusedError("x"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_errors_of_remote_reads_have_the_codes_of_kafka(
    error: RemoteReadError | StoreError, code: ErrorCode
) -> None:
    assert code_of(error) is code


@pytest.mark.parametrize("reads", [NoRemoteReads(), FakeRemoteReads()])
def test_nothing_is_copied_at_first(reads: RemoteReads) -> None:
    assert reads.highest_remote(PARTITION) == NOTHING_COPIED == (-1, -1)
