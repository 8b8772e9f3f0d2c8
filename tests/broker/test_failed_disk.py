"""One failed file of one disk: leadership moves at once, the broker and its other disk serve on."""

import errno
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.broker.broker_driver import Broker
from ottla.broker.cluster.membership import lifecycle_driver
from ottla.client.producer import open_producer
from ottla.model.ids import NodeId
from ottla.testing.in_process import open_in_process_cluster

AN_HOUR_MS = "3600000"


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await trio.sleep(0.01)


def leader_of(brokers: Mapping[NodeId, Broker], topic: str) -> Broker | None:
    """Return the broker that leads partition 0 by its own state."""
    for broker in brokers.values():
        partition = broker.table.by_name.get(topic, {}).get(0)
        if partition is not None and partition.is_leader and partition.leader_epoch >= 0:
            return broker
    return None


def fail_writing(patch: pytest.MonkeyPatch, directory: str) -> None:
    for write in (os.pwrite, os.pwritev):
        patch.setattr(os, write.__name__, partial(_write_or_fail, write, directory))


def _write_or_fail(
    write: Callable[[int, Any, int], int], directory: str, file: int, data: Any, position: int
) -> int:
    if os.readlink(f"/proc/self/fd/{file}").startswith(directory):
        raise OSError(errno.EIO, "the disk fails as asked")
    return write(file, data, position)


def fail_sending(patch: pytest.MonkeyPatch, directory: str) -> None:
    sendfile = os.sendfile

    def sendfile_or_fail(to: int, file: int, position: int, size: int) -> int:
        if os.readlink(f"/proc/self/fd/{file}").startswith(directory):
            raise OSError(errno.EIO, "the disk fails as asked")
        return sendfile(to, file, position, size)

    patch.setattr(os, "sendfile", sendfile_or_fail)


def fail_reading_small_slices(patch: pytest.MonkeyPatch, directory: str) -> None:
    preadv = os.preadv

    def preadv_or_fail(file: int, *arguments: Any) -> int:
        if os.readlink(f"/proc/self/fd/{file}").startswith(directory):
            raise OSError(errno.EIO, "the disk fails as asked")
        return preadv(file, *arguments)

    patch.setattr(os, "preadv", preadv_or_fail)
    fail_sending(patch, directory)


@pytest.mark.parametrize(
    ("fail", "value_bytes"),
    [(fail_writing, 1), (fail_sending, 300_000), (fail_reading_small_slices, 1)],
)
async def test_a_failed_file_moves_leadership_at_once_and_ends_no_broker(
    fail: Callable[[pytest.MonkeyPatch, str], None],
    value_bytes: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No heartbeat is due within the hour: that of the failed directory does not wait for it."""
    monkeypatch.setattr(lifecycle_driver, "CONTROLLED_SHUTDOWN_MS_MAX", 100)
    settings = {
        "broker.heartbeat.interval.ms": AN_HOUR_MS,
        "broker.session.timeout.ms": str(2 * int(AN_HOUR_MS)),
        "min.insync.replicas": "2",
    }
    with trio.fail_after(60):
        async with (
            open_in_process_cluster(
                broker_count=3, directory=tmp_path, settings=settings, log_dir_count=2
            ) as cluster,
            open_producer(cluster.bootstrap) as producer,
        ):
            assert (await (await producer.send("t", b"0", timestamp_ms=1))).offset == 0
            failing = leader_of(cluster.brokers, "t")
            assert failing is not None
            log = failing.table.find("t", 0).leader_log()
            fail(monkeypatch, log.directory)
            assert (
                await (await producer.send("t", bytes(value_bytes), timestamp_ms=1))
            ).offset == 1

            await until(lambda: failing.config.node_id not in in_sync(failing, "t"))
            failed = [one for one in failing.logs.directories if not one.is_live]
            assert [one.path for one in failed] == [log.directory.rpartition("/")[0]]
            assert not failing.lifecycle.lifecycle.is_fenced
            assert not failing.errors.counts


def in_sync(broker: Broker, topic: str) -> tuple[NodeId, ...]:
    found = broker.member.image.topic(topic)
    assert found is not None
    return tuple(found.partitions[0].isr)
