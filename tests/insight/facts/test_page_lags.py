"""Lags of the groups and partitions of one page, and the plan of a reset."""

from ottla.client import open_producer
from ottla.client.admin import open_admin
from ottla.client.testing import open_test_cluster
from ottla.insight.changes.reset_plan_driver import ResetRow, ResetTo, limited, plan_reset
from ottla.insight.facts.page_lags_driver import LagRow, ages_of, lag_rows, record_lags
from ottla.model.ids import TopicPartition

FIRST, SECOND, GONE = (
    TopicPartition("orders", 0),
    TopicPartition("orders", 1),
    TopicPartition("gone", 0),
)


def test_new_offsets_are_limited_to_the_records() -> None:
    starts, ends = {FIRST: 10, SECOND: 0}, {FIRST: 20, SECOND: 5}
    low, high = limited({FIRST: 15}, {FIRST: 3, SECOND: 99}, starts, ends)
    assert low == ResetRow(FIRST, 15, 10, 3)
    assert high == ResetRow(SECOND, None, 5, 99)
    assert (low.difference, high.difference) == (-5, None)


async def test_lags_are_read_for_partitions_that_exist() -> None:
    async with (
        open_test_cluster(settings={"offsets.topic.num.partitions": "1"}) as cluster,
        open_admin(cluster.bootstrap) as admin,
        open_producer(cluster.bootstrap) as producer,
    ):
        await admin.create_topic("orders", partition_count=2)
        await admin.create_topic("gone", partition_count=1)
        for _ in range(3):
            await (await producer.send("orders", b"v", partition=0))
        await admin.alter_group_offsets("billing", {FIRST: 1, GONE: 0})
        await admin.delete_topic("gone")
        rows = await lag_rows(admin, "billing", [SECOND])
        assert {one.at: one.lag for one in rows if one.at != GONE} == {FIRST: 2, SECOND: None}
        # The coordinator may delete the offsets of a deleted topic at any time.
        assert all(one == LagRow(GONE, 0, None) for one in rows if one.at == GONE)
        ages = await ages_of(admin, rows)
        assert set(ages) == {FIRST}
        assert ages[FIRST] is not None
        assert await record_lags(admin, ["billing", "unknown"]) == {"billing": 2, "unknown": None}
        (row,) = await plan_reset(admin, {FIRST: 1}, [FIRST], ResetTo.SHIFT, 100)
        assert (row.after, row.requested, row.difference) == (3, 101, 2)
