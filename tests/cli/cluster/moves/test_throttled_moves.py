"""`ottla topic reassign --throttle`: set, in force, removed at the end; left over and verified."""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from ottla.cli.cluster.moves import reassign as command
from ottla.cli.cluster.moves.reassign_arguments import REASSIGN
from ottla.cli.cluster.moves.throttle_requests import lists_of
from ottla.cli.cluster.moves.throttled_moves import rate_asked_for
from ottla.cli.verbs import declare_verbs
from ottla.client.admin import Admin, open_admin
from ottla.client.producer import open_producer
from ottla.insight.facts.survey_driver import survey
from ottla.insight.rules.health import warnings_of
from ottla.model.errors import ConfigError
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.limits import INT64_MAX, KIB
from ottla.model.settings.storage.throttled_replicas import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    LISTS,
)
from ottla.testing.in_process import InProcessCluster, open_in_process_cluster

RATE = "200k"
ONE_BATCH_A_FETCH = {"replica.fetch.max.bytes": "1"}
ORDERS = TopicPartition("orders", 0)


def asked(text: str) -> argparse.Namespace:
    """Return the arguments of `ottla topic reassign` with this text."""
    parser = argparse.ArgumentParser()
    declare_verbs(parser, [REASSIGN])
    return parser.parse_args(["reassign", *text.split()])


@asynccontextmanager
async def moving_cluster(
    *, broker_count: int = 2, log_dir_count: int = 1
) -> AsyncIterator[tuple[InProcessCluster, Admin]]:
    """Open a cluster with 1 MB in orders-0, on one broker."""
    async with (
        open_in_process_cluster(
            broker_count=broker_count, log_dir_count=log_dir_count, settings=ONE_BATCH_A_FETCH
        ) as cluster,
        open_admin(cluster.bootstrap) as admin,
    ):
        await admin.create_topic("orders", partition_count=1, replication_factor=1)
        async with open_producer(cluster.bootstrap) as producer:
            for _ in range(10):
                await (await producer.send("orders", b"v" * (100 * KIB), partition=0))
        yield cluster, admin


async def brokers_of(admin: Admin) -> tuple[int, int]:
    """Return the broker that holds orders-0, and the other one."""
    (partition,) = (await admin.describe_topic("orders")).partitions
    (holder,) = partition.replicas
    return holder, 3 - holder


async def lists_in_force(admin: Admin) -> list[str]:
    (found,) = await lists_of(admin, ["orders"])
    return [str(found.lists[key]) for key in LISTS]


def limits(cluster: InProcessCluster) -> list[int]:
    return [
        quota.limit
        for broker in cluster.brokers.values()
        for quotas in (broker.core.replication_quotas,)
        for quota in (quotas.leader, quotas.follower, quotas.log_dirs)
    ]


async def is_limited(cluster: InProcessCluster, *expected: int) -> None:
    """Wait until the brokers have these limits: leader, follower and directories of each."""
    with trio.fail_after(30):
        while limits(cluster) != list(expected):
            await trio.sleep(0.02)


async def test_a_throttled_move_ends_whole_and_leaves_no_throttle(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with moving_cluster() as (cluster, admin):
        holder, other = await brokers_of(admin)
        seen = []
        async with trio.open_nursery() as nursery:

            async def look() -> None:
                await is_limited(cluster, *[200_000, 200_000, INT64_MAX] * 2)
                while not all(lists := await lists_in_force(admin)):
                    await trio.sleep(0.02)
                seen.append(lists)

            nursery.start_soon(look)
            started = trio.current_time()
            arguments = asked(f"orders --brokers {other} --yes --throttle {RATE}")
            assert await command.reassign(admin, arguments) == 0
            took_s = trio.current_time() - started
        assert seen == [[f"0:{holder}", f"0:{other}"]]
        # One second's bytes at once, the last answer as it comes, the rest at the rate.
        assert took_s > 2
        assert "throttle removed from 1 topic and broker 1, 2" in capsys.readouterr().err
        assert await lists_in_force(admin) == ["", ""]
        await is_limited(cluster, *[INT64_MAX] * 6)
        (partition,) = (await admin.describe_topic("orders")).partitions
        assert partition.replicas == (other,)
        assert (await admin.list_offsets({ORDERS: -1}))[ORDERS].offset == 10
        configs = await admin.topic_configs("orders")
        assert configs[LEADER_REPLICAS].source == configs["retention.ms"].source


async def test_what_a_killed_command_left_is_warned_of_and_verified_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with moving_cluster() as (cluster, admin):
        holder, other = await brokers_of(admin)
        await admin.alter_topic_configs("orders", {LEADER_REPLICAS: "0:7"})
        with trio.move_on_after(30) as life:

            async def kill() -> None:
                await is_limited(cluster, *[200_000, 200_000, INT64_MAX] * 2)
                while not await admin.list_reassignments():
                    await trio.sleep(0.02)
                life.cancel()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(kill)
                arguments = asked(f"orders --brokers {other} --yes --throttle {RATE}")
                await command.reassign(admin, arguments)
        assert "the moves go on under their throttle" in capsys.readouterr().err
        with trio.fail_after(60):
            while await admin.list_reassignments():
                await trio.sleep(0.1)
        assert (
            "still throttles replication to 200,000 bytes/s" in warnings_of(await survey(admin))[0]
        )
        assert await lists_in_force(admin) == [f"0:{holder},0:7", f"0:{other}"]

        assert await command.reassign(admin, asked("--verify")) == 0

        assert "throttle removed from" in capsys.readouterr().err
        assert await lists_in_force(admin) == ["", ""]
        await is_limited(cluster, *[INT64_MAX] * 6)
        assert warnings_of(await survey(admin)) == []
        assert await command.reassign(admin, asked("--verify")) == 0
        assert "no throttle to remove" in capsys.readouterr().err


async def test_moves_under_way_keep_their_throttle_and_can_have_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with moving_cluster() as (cluster, admin):
        _holder, other = await brokers_of(admin)
        begin = asked(f"orders --brokers {other} --yes --throttle 1 --no-wait")
        assert await command.reassign(admin, begin) == 0
        assert "the moves go on under their throttle" in capsys.readouterr().err
        assert await command.reassign(admin, asked("--verify")) == 0
        assert "throttles stay that a move needs" in capsys.readouterr().err
        await is_limited(cluster, *[1, 1, INT64_MAX] * 2)

        assert await command.reassign(admin, asked("--yes --throttle 1G")) == 0

        assert "1 partition moved" in capsys.readouterr().err
        assert await lists_in_force(admin) == ["", ""]
        await is_limited(cluster, *[INT64_MAX] * 6)


async def test_a_move_that_is_called_back_has_its_throttle_removed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with moving_cluster() as (cluster, admin):
        _holder, other = await brokers_of(admin)
        begin = asked(f"orders --brokers {other} --yes --throttle 1 --no-wait")
        assert await command.reassign(admin, begin) == 0

        assert await command.reassign(admin, asked("orders --cancel")) == 0

        assert await lists_in_force(admin) == ["", ""]
        await is_limited(cluster, *[INT64_MAX] * 6)


async def test_a_move_between_directories_is_throttled_and_no_longer_at_its_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with moving_cluster(broker_count=1, log_dir_count=2) as (cluster, admin):
        target = next(
            one.path for one in await admin.describe_log_dirs(NodeId(1)) if not one.replicas
        )
        arguments = asked(f"orders --log-dir {target} --yes --log-dir-throttle 400k")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(is_limited, cluster, INT64_MAX, INT64_MAX, 400_000)
            started = trio.current_time()
            assert await command.reassign(admin, arguments) == 0
        assert trio.current_time() - started > 1
        assert "throttle removed from broker 1" in capsys.readouterr().err
        await is_limited(cluster, *[INT64_MAX] * 3)
        assert (await admin.list_offsets({ORDERS: -1}))[ORDERS].offset == 10


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a --brokers 1 --throttle 1M --dry-run", "has no effect with --dry-run"),
        ("a --brokers 1 --yes --throttle x", "such as 20M"),
        ("a --brokers 1 --yes --log-dir-throttle 1M", "is for moves of --log-dir"),
        ("a --log-dir /x --yes --throttle 1M", "see --log-dir-throttle"),
        ("--cancel --throttle 1M", "belongs to moves"),
    ],
)
async def test_a_throttle_of_no_use_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rate_asked_for(asked(text))


def test_kafkas_name_of_the_throttle_between_directories_is_taken() -> None:
    arguments = asked("--log-dir /x --replica-alter-log-dirs-throttle 5M")

    assert arguments.log_dir_throttle == "5M"
    assert FOLLOWER_REPLICAS in LISTS
