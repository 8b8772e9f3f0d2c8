"""`ottla group lag` of all groups, in records and in time, on a real broker."""

import json
import time
from typing import Any

import pytest
import trio

from ottla.cli.groups import group as command
from ottla.client import open_producer
from ottla.client.admin import Admin, open_admin
from ottla.client.testing import open_test_cluster
from ottla.insight.facts import first_unread_driver as first_unread
from ottla.model.ids import TopicPartition
from tests.cli_verbs import run_verb

ORDERS = TopicPartition("orders", 0)
PAYMENTS = TopicPartition("payments", 0)
GONE = TopicPartition("gone", 0)
NOW_MS = time.time_ns() // 1_000_000
TIMEOUT_S = 60


async def say(admin: Admin, capsys: Any, *words: str) -> str:
    assert await run_verb(command, admin, "lag", *words) == 0
    return str(capsys.readouterr().out)


async def test_all_groups_are_shown_with_records_and_seconds_by_partition(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_unread, "_wall_ms", lambda: NOW_MS)
    with trio.fail_after(TIMEOUT_S):
        async with (
            open_test_cluster() as cluster,
            open_admin(cluster.bootstrap) as admin,
            open_producer(cluster.bootstrap) as producer,
        ):
            for at in (ORDERS, PAYMENTS, GONE):
                await admin.create_topic(at.topic, partition_count=1)
            # One batch: the first record not consumed is inside it.
            sent = [
                await producer.send("orders", b"v", timestamp_ms=NOW_MS - ago * 1_000)
                for ago in (90, 60, 30)
            ]
            for each in sent:
                await each
            await (await producer.send("payments", b"v", timestamp_ms=NOW_MS - 5_000))
            await admin.try_alter_group_offsets("billing", {ORDERS: 1, PAYMENTS: 1, GONE: 0})
            await admin.try_alter_group_offsets("audit", {ORDERS: 0, PAYMENTS: 0})
            await admin.try_alter_group_offsets("done", {ORDERS: 3})
            await admin.delete_topic("gone")

            found = {
                one["group"]: one
                for one in json.loads(await say(admin, capsys, "--format", "json"))
            }

            assert {name: (one["lag"], one["seconds"]) for name, one in found.items()} == {
                "audit": (4, 90.0),
                "billing": (2, 60.0),
                "done": (0, 0.0),
            }
            assert [
                (one["topic"], one["committed"], one["end"], one["lag"], one["seconds"])
                for one in found["audit"]["partitions"]
            ] == [("orders", 0, 3, 3, 90.0), ("payments", 0, 1, 1, 5.0)]
            rows = [line.split() for line in (await say(admin, capsys)).splitlines()]
            assert rows[0] == ["GROUP", "TOPICS", "PARTITIONS", "LAG", "BEHIND"]
            assert [row[0] for row in rows[1:]] == ["audit", "billing", "done"]
            parts = (await say(admin, capsys, "--partitions")).splitlines()
            assert parts[0].split()[-2:] == ["LAG", "BEHIND"]
            assert len(parts) >= 6
            (alone,) = json.loads(await say(admin, capsys, "done", "--format", "json"))
            assert (alone["lag"], alone["seconds"]) == (0, 0.0)


async def test_records_that_retention_deleted_do_not_hide_the_age_of_the_rest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_unread, "_wall_ms", lambda: NOW_MS)
    with trio.fail_after(TIMEOUT_S):
        async with (
            open_test_cluster() as cluster,
            open_admin(cluster.bootstrap) as admin,
            open_producer(cluster.bootstrap) as producer,
        ):
            await admin.create_topic("orders", partition_count=1)
            for ago in (90, 60):
                await (await producer.send("orders", b"v", timestamp_ms=NOW_MS - ago * 1_000))
            await admin.try_alter_group_offsets("billing", {ORDERS: 0})
            await admin.delete_records({ORDERS: 1})
            (found,) = json.loads(await say(admin, capsys, "--format", "json"))
            assert (found["lag"], found["seconds"]) == (2, 60.0)


async def test_a_look_up_is_bounded_and_shared_by_groups_at_one_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[first_unread.Unread] = []

    async def stamp(_cluster: object, place: first_unread.Unread, _level: str) -> int:
        asked.append(place)
        await trio.lowlevel.checkpoint()
        return time.time_ns() // 1_000_000

    monkeypatch.setattr(first_unread, "_timestamp_from", stamp)
    place = first_unread.Unread(ORDERS, 4)
    reports: list[tuple[int, int]] = []
    found = await first_unread.seconds_behind(
        None,  # type: ignore[arg-type]  # the look-up is replaced
        [place, place],
        report=lambda done, total: reports.append((done, total)),
    )
    assert asked == [place] == list(found)
    assert reports == [(1, 1)]
