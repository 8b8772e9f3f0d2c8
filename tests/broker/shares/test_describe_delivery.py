"""DescribeShareDelivery: the records of a group by the reason why they are not delivered now."""

from typing import Any

from ottla.model.errors import ErrorCode
from ottla.wire.apis import DESCRIBE_SHARE_DELIVERY
from ottla.wire.messages.describe_share_delivery_request import DescribeShareDeliveryRequest
from ottla.wire.messages.describe_share_delivery_response import DescribeShareDeliveryResponse
from tests.broker.shares.conftest import ShareBench
from tests.broker.shares.test_ordered_fetch import RELEASE, T, append, delay, delayed, use


def describe(bench: ShareBench, group_id: str = "g", permissions: Any = None) -> Any:
    call = bench.world.call(DESCRIBE_SHARE_DELIVERY, 0)
    call.context.permissions = permissions
    request = DescribeShareDeliveryRequest(group_id=group_id)
    bench.world.run(bench.apis.describe.handle, call, request)
    return call.response(DescribeShareDeliveryResponse)


async def test_each_record_is_counted_under_its_reason(bench: ShareBench) -> None:
    partition = await delayed(bench)
    use(bench, key_concurrency=1, backoff_ms_min=1_000, backoff_ms_max=1_000)
    plain = [(b"a", ()), (b"a", ()), (b"b", ()), (b"c", ()), (None, ())]
    append(bench, partition, *plain, (None, delay(5_000)), (None, delay(9_000)))
    bench.fetch(T, epoch=0, max_records=3)
    bench.fetch(epoch=1, max_records=0, acks={T: [(2, 2, RELEASE)]})
    (row,) = describe(bench).partitions
    now_ms = bench.world.clock.wall_ms()
    assert (row.topic_name, row.partition_index) == T
    assert (row.acquired_count, row.ready_count, row.key_count) == (2, 1, 1)
    assert (row.delayed_count, row.next_due_ms) == (2, now_ms + 5_000)
    assert (row.backoff_count, row.next_backoff_ms) == (1, now_ms + 1_000)


async def test_a_group_in_the_order_of_the_log_has_acquired_and_ready_records(
    bench: ShareBench,
) -> None:
    partition = await bench.add()
    append(bench, partition, (None, ()), (None, ()))
    bench.fetch(T, epoch=0)
    bench.fetch(epoch=1, max_records=0, acks={T: [(1, 1, RELEASE)]})
    (row,) = describe(bench).partitions
    assert (row.acquired_count, row.ready_count, row.next_due_ms) == (1, 1, -1)


async def test_a_group_that_nothing_fetches_has_no_rows(bench: ShareBench) -> None:
    await bench.add()
    assert describe(bench, "other").partitions == []
    assert describe(bench, "").error_code == ErrorCode.INVALID_REQUEST


class NoPermissions:
    """Permissions of a client that may describe no topic."""

    def allows(self, *_: object, **__: object) -> bool:
        return False


async def test_topics_that_the_client_may_not_describe_are_absent(bench: ShareBench) -> None:
    partition = await delayed(bench)
    append(bench, partition, (None, ()))
    bench.fetch(T, epoch=0)
    assert describe(bench, permissions=NoPermissions()).partitions == []
    assert len(describe(bench).partitions) == 1
