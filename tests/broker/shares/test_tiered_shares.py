"""Members of a share group get records that only the object store has."""

from dataclasses import replace

import trio
import trio.testing

from ottla.broker.tier.remote_fetches import RemoteFetches
from ottla.broker.tier.remote_reads import RemoteNotFoundError
from ottla.broker.tier.remote_reads_driver import RemoteReadTasks
from ottla.model.errors import ErrorCode
from ottla.model.ids import Offset
from ottla.model.settings.storage.topic import TopicConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.wire.batch import batches
from tests.broker.shares.conftest import ShareBench, acquired, code_of, parts
from tests.broker.tier.fake_remote_reads import FakeRemoteReads

T = ("t", 0)
TIERED = TopicConfig(remote_storage_enable=True, local_retention_bytes=0)


async def test_an_order_of_deliveries_reads_the_local_log_alone(bench: ShareBench) -> None:
    partition = await bench.add(config=replace(TIERED, share_delay_ms=0))
    bench.append(partition, b"0")
    await partition.log.roll(now_ms=0)
    bench.append(partition, b"1")
    partition.log.copied_offset = Offset(0)
    await partition.log.delete_local_segments(0)
    assert partition.log.local_start_offset == 1

    call = bench.fetch(T, epoch=0, max_wait_ms=500)
    assert parts(call)[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_records_below_the_local_start_are_acquired_from_the_object_store(
    bench: ShareBench, nursery: trio.Nursery
) -> None:
    errors, reads = UnexpectedErrors(), FakeRemoteReads()
    tasks = RemoteReadTasks(errors)
    nursery.start_soon(tasks.run)
    await trio.testing.wait_all_tasks_blocked()
    bench.apis.fetch.remote_fetches = RemoteFetches(
        reads, tasks.begin, bench.world.purgatory.wake, errors
    )
    partition = await bench.add(config=TIERED)
    log = partition.log
    for offset in range(4):
        bench.append(partition, b"%d" % offset)
        data = await log.read_bytes(Offset(offset), bytes_max=1 << 20, end_offset=log.end_offset)
        reads.batches.setdefault(partition.key, []).append((Offset(offset + 1), bytes(data)))
    await log.roll(now_ms=0)
    bench.append(partition, b"4")
    log.copied_offset = Offset(3)
    await log.delete_local_segments(0)
    assert (log.log_start_offset, log.local_start_offset) == (0, 4)

    reads.error = RemoteNotFoundError("x")
    call = bench.fetch(T, epoch=0, max_wait_ms=500)
    await trio.testing.wait_all_tasks_blocked()
    assert parts(call)[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    reads.error = None
    call = bench.fetch(T, epoch=0, member_id="n", max_wait_ms=500, max_records=2)
    assert not call.is_completed
    await trio.testing.wait_all_tasks_blocked()
    assert code_of(call) == 0
    assert acquired(call) == [(0, 1, 1)]
    (part,) = parts(call)
    assert isinstance(part.records, bytes | memoryview)
    assert [header.base_offset for _, header in batches(part.records)] == [0, 1]
    read_count = len(reads.reads)

    call = bench.fetch(epoch=1, member_id="n", acks={T: [(0, 1, [1])]}, max_wait_ms=500)
    await trio.testing.wait_all_tasks_blocked()
    assert acquired(call) == [(2, 3, 1)]
    assert len(reads.reads) == read_count + 1
