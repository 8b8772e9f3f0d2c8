"""`ottla cleaner`: compaction as an operator sees and steers it."""

import json
from typing import Any

import pytest
import trio

from ottla.cli.cluster.cleaning import cleaner
from ottla.cli.cluster.cleaning.cleaner_passes import ReplicaAt, RequestedPass, progress_of
from ottla.cli.cluster.cleaning.cleaner_targets import NamedLogs, parse_named, replicas_of
from ottla.client.admin import Admin, open_admin
from ottla.client.admin_parts.admin_cleaner import CleaningPass, LogCleaning
from ottla.client.network.connection import ConnectionLostError
from ottla.client.producer import open_producer
from ottla.client.testing import open_test_cluster
from ottla.model.errors import ConfigError, RefusedError
from ottla.model.ids import NodeId, Offset, TopicPartition
from tests.cli_verbs import run_verb

AT = TopicPartition("t", 0)
PASS = CleaningPass(1_000, 20, 500, 100, 50, 10)


def standing(state: str = "idle", **changes: Any) -> LogCleaning:
    fields: dict[str, Any] = {
        "reason": None,
        "retry_in_ms": None,
        "is_wanted": False,
        "clean_bytes": 0,
        "cleanable_bytes": 0,
        "first_dirty_offset": Offset(0),
        "end_offset": Offset(0),
        "last": None,
    }
    return LogCleaning(state=state, **{**fields, **changes})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("t", NamedLogs("t", None)),
        ("t:0", NamedLogs("t", 0)),
        ("a.b-c_d:12", NamedLogs("a.b-c_d", 12)),
    ],
)
def test_a_topic_or_a_partition_is_named(text: str, named: NamedLogs) -> None:
    assert parse_named(text) == named


@pytest.mark.parametrize("text", ["t:", ":1", ":", "t:x", "t:-1", "t:1234567890", "t:²"])
def test_what_names_no_partition_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be a topic"):
        parse_named(text)


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        (standing("asked for", is_wanted=True, cleanable_bytes=9), ""),
        (standing("paused", is_wanted=True, cleanable_bytes=9), ""),
        (standing("cleaning", cleanable_bytes=9), ""),
        (standing(last=PASS), "compacted"),
        (standing(cleanable_bytes=5, last=PASS), "compacted"),
        (standing("failed", reason="disk full"), "failed"),
        (standing("set aside", reason="damaged"), "set aside"),
        (standing("offline", is_wanted=True, cleanable_bytes=9), "offline"),
        (standing("due", cleanable_bytes=9), "ended early"),
        (standing(is_wanted=True), "nothing to do"),
        (None, "gone"),
    ],
)
def test_a_pass_ends_as_its_broker_says(seen: LogCleaning | None, outcome: str) -> None:
    asked = RequestedPass(ReplicaAt(AT, NodeId(1)), before=None)
    asked.look(seen)
    assert asked.outcome == outcome


def test_the_pass_before_is_not_taken_for_the_one_asked_for() -> None:
    asked = RequestedPass(ReplicaAt(AT, NodeId(1)), before=PASS)
    asked.look(standing("due", last=PASS, cleanable_bytes=9))
    assert asked.outcome == "ended early"
    later = PASS._replace(ended_ms=2_000)
    asked = RequestedPass(ReplicaAt(AT, NodeId(1)), before=PASS)
    asked.look(standing(last=later))
    assert (asked.outcome, asked.last) == ("compacted", later)


def test_progress_names_what_is_cleaned_now() -> None:
    asked = [RequestedPass(ReplicaAt(AT, NodeId(broker)), None) for broker in range(1, 7)]
    asked[0].look(standing(last=PASS))
    assert progress_of(asked) == "1 of 6 replicas done"
    for one in asked[1:6]:
        one.look(standing("cleaning"))
    assert progress_of(asked) == (
        "1 of 6 replicas done; cleaning t-0 on broker 2, t-0 on broker 3, t-0 on broker 4, …"
    )


async def command(admin: Admin, *words: str) -> int:
    return await run_verb(cleaner, admin, *words)


async def filled(bootstrap: str, *, replica_count: int = 2) -> None:
    async with open_admin(bootstrap) as admin:
        for name, policy in (("users", "compact"), ("events", "delete")):
            await admin.create_topic(
                name,
                partition_count=2,
                replication_factor=replica_count,
                configs={"cleanup.policy": policy},
            )
    async with open_producer(bootstrap) as producer:
        for number in range(100):
            await producer.send("users", b"v" * 100, key=b"k%d" % (number % 4), partition=1)
    async with open_admin(bootstrap) as admin:
        for node in range(1, replica_count + 1):
            await until_committed(admin, NodeId(node))


async def until_committed(admin: Admin, node: NodeId) -> None:
    """Wait until a replica knows that its records are committed: a follower learns it later."""
    at, empty = TopicPartition("users", 1), TopicPartition("users", 0)
    with trio.fail_after(60):
        while True:
            logs = (await admin.describe_cleaner(node, [at, empty])).logs
            found = logs.get(at)
            if found is not None and "active segment" in (found.reason or "") and empty in logs:
                return
            await trio.sleep(0.05)


async def test_a_topic_is_compacted_on_all_its_brokers_and_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with open_test_cluster(broker_count=2) as cluster:
        await filled(cluster.bootstrap)
        async with open_admin(cluster.bootstrap) as admin:
            capsys.readouterr()
            assert await command(admin, "run", "users:1", "--format", "json") == 0
            rows = json.loads(capsys.readouterr().out)
            assert [(row["topic"], row["partition"], row["broker"]) for row in rows] == [
                ("users", 1, 1),
                ("users", 1, 2),
            ]
            for row in rows:
                assert (row["outcome"], row["reason"], row["dirty_ratio"]) == ("compacted", None, 0)
                assert row["pass"]["written_record_count"] == 4
                assert row["pass"]["saved_bytes"] > 0

            assert await command(admin, "run", "users") == 0
            lines = capsys.readouterr().out.splitlines()
            assert [line.split()[:3] for line in lines[1:]] == [
                ["users", "0", "1"],
                ["users", "0", "2"],
                ["users", "1", "1"],
                ["users", "1", "2"],
            ]
            assert all("nothing to do" in line for line in lines[1:])

            assert await command(admin, "status", "users", "--broker", "2") == 0
            lines = capsys.readouterr().out.splitlines()
            assert lines[0].split()[:5] == ["TOPIC", "PARTITION", "BROKER", "STATE", "DIRTY-%"]
            rows = [line for line in lines if line.startswith("users ")]
            assert [line.split()[:4] for line in rows] == [
                ["users", "0", "2", "idle"],
                ["users", "1", "2", "idle"],
            ]
            assert lines[-1].startswith(
                "broker 2: 1 cleaner; since its start passes: 1, failed: 0, "
            )

            assert await command(admin, "status", "--format", "json") == 0
            brokers = json.loads(capsys.readouterr().out)
            assert [broker["broker"] for broker in brokers] == [1, 2]
            for broker in brokers:
                last = {row["partition"]: row["last_pass"] for row in broker["logs"]}
                assert last[0] is None
                assert last[1]["written_record_count"] == 4


async def test_what_cannot_be_compacted_is_refused_in_one_sentence() -> None:
    async with open_test_cluster(broker_count=2) as cluster:
        await filled(cluster.bootstrap)
        async with open_admin(cluster.bootstrap) as admin:
            for words, sentence in (
                (("run", "none"), "topic 'none': it does not exist"),
                (("status", "none"), "topic 'none': it does not exist"),
                (("run", "users:2"), "topic 'users' has no partition 2; it has 2 partitions"),
                (("retry", "users", "--broker", "9"), "there is no broker 9 in this cluster"),
                (("run", "events"), "topic 'events' is not compacted; 'ottla config set --topic"),
                (("status", "events"), "topic 'events' is not compacted"),
                (("retry", "events:0"), "topic 'events' is not compacted"),
            ):
                with pytest.raises(RefusedError) as refused:
                    await command(admin, *words)
                assert sentence in str(refused.value), words


async def test_a_broker_that_is_silent_costs_its_own_rows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with open_test_cluster(broker_count=2) as cluster:
        await filled(cluster.bootstrap)
        async with open_admin(cluster.bootstrap) as admin:
            assert await replicas_of(admin, ["users:0"], None) == {
                1: {("users", 0)},
                2: {("users", 0)},
            }
            ask = admin.describe_cleaner

            async def describe(node: NodeId, partitions: Any = None) -> Any:
                if node == 2:
                    raise ConnectionLostError("its machine is gone")
                return await ask(node, partitions)

            admin.describe_cleaner = describe  # type: ignore[method-assign]
            capsys.readouterr()
            for verb in ("status", "run"):
                assert await command(admin, verb, "users:1") == 3
                captured = capsys.readouterr()
                assert captured.out.splitlines()[1].split()[:3] == ["users", "1", "1"]
                assert "broker 2: its machine is gone" in captured.err


async def test_logs_whose_cleaning_failed_are_shown_and_tried_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with open_test_cluster(broker_count=1) as cluster:
        await filled(cluster.bootstrap, replica_count=1)
        manager = cluster.brokers[NodeId(1)].logs.cleaner.manager
        manager.on_failed(TopicPartition("users", 0), "a batch is damaged", now_ms=0, is_final=True)
        async with open_admin(cluster.bootstrap) as admin:
            capsys.readouterr()
            assert await command(admin, "status", "--failed") == 2
            assert "set aside" in capsys.readouterr().out
            assert await command(admin, "retry") == 0
            assert "tried again" in capsys.readouterr().out
            assert await command(admin, "status", "--failed") == 0
            assert await command(admin, "retry") == 0
            assert "the cleaning of no log has failed" in capsys.readouterr().err
