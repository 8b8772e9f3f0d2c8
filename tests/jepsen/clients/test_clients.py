"""Outcome that each client derives from a response: certain, impossible, or unknown."""

import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from confluent_kafka import KafkaError, KafkaException

from ottla.client import Admin, open_admin
from ottla.client.consumer import Consumer, open_consumer
from ottla.client.groups.committer import PendingCommit
from ottla.client.testing import ClusterUnderTest
from ottla.jepsen.clients import confluent, confluent_queue, own
from ottla.jepsen.clients.confluent import ConfluentClient
from ottla.jepsen.clients.confluent_group import ConfluentGroupClient
from ottla.jepsen.clients.topics import clear_away
from ottla.jepsen.history import EventKind, Json
from ottla.jepsen.workloads.group import RANGE
from ottla.jepsen.workloads.load import (
    CONFLUENT,
    OWN,
    Completion,
    LoadClient,
    LoadPlan,
    Op,
)
from ottla.jepsen.workloads.subscribers import CONSUMER
from ottla.jepsen.workloads.table import RECORD_KEYS, WORKLOADS
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import TopicPartition

TIMEOUT_S = 60

KINDS = (OWN, CONFLUENT)
"""Kinds of clients that every workload has; the Java client is in the workload `share` alone."""


@asynccontextmanager
async def client_of(
    cluster: ClusterUnderTest, name: str, kind: str, notes: list[tuple[str, Json]] | None = None
) -> AsyncIterator[LoadClient]:
    workload = WORKLOADS[name](LoadPlan(prefix="t-", kinds=(kind,)))
    await workload.set_up(cluster.bootstrap)
    response = [] if notes is None else notes
    async with workload.open_client(
        cluster.bootstrap, 0, lambda f, value: response.append((f, value))
    ) as client:
        yield client


async def until_read(client: LoadClient) -> Completion:
    """Poll until something comes, or fails."""
    with trio.fail_after(TIMEOUT_S):
        while True:
            done = await client.invoke(Op("poll", [["poll"]]))
            if done.kind is not EventKind.OK or done.value[0][1]:
                return done


@pytest.mark.parametrize("kind", KINDS)
async def test_compacted_topics_get_records_whose_keys_follow_from_their_values(
    kind: str, ottla_cluster: ClusterUnderTest
) -> None:
    async with client_of(ottla_cluster, "compacted", kind) as client:
        key = "t-compacted-q0-1"
        for value in (7, RECORD_KEYS + 7):
            assert (await client.invoke(Op("send", [["send", key, value]]))).kind is EventKind.OK
    async with open_consumer(ottla_cluster.bootstrap) as consumer:
        consumer.assign([TopicPartition("t-compacted-q0", 1)])
        consumer.seek_to_beginning()
        with trio.fail_after(TIMEOUT_S):
            found = [(await anext(consumer)).key for _ in range(2)]
        assert found == [b"7", b"7"]
    async with open_admin(ottla_cluster.bootstrap) as admin:
        configs = await admin.topic_configs("t-compacted-q0")
        assert configs["cleanup.policy"].value == "compact"


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_sent_is_read_where_it_is_said_to_be(
    kind: str, ottla_cluster: ClusterUnderTest
) -> None:
    async with client_of(ottla_cluster, "queue", kind) as client:
        for value in (7, 8):
            done = await client.invoke(Op("send", [["send", "t-q0-1", value]]))
            assert done.value == [["send", "t-q0-1", [value - 7, value]]]
            assert done.extra == {"client": kind}
        assert (await client.invoke(Op("assign", ["t-q0-1"]))).kind is EventKind.OK
        read = await until_read(client)
        assert read.value[0][1]["t-q0-1"][0] == [0, 7]
        assert read.extra["mode"] == "assign"


@pytest.mark.parametrize("kind", KINDS)
async def test_kept_keys_continue_and_a_crash_restarts_from_the_beginning(
    kind: str, ottla_cluster: ClusterUnderTest
) -> None:
    async with client_of(ottla_cluster, "queue", kind) as client:
        await client.invoke(Op("send", [["send", "t-q0-0", 0]]))
        await client.invoke(Op("assign", ["t-q0-0"]))
        assert (await until_read(client)).value == [["poll", {"t-q0-0": [[0, 0]]}]]
        await client.invoke(Op("assign", ["t-q0-0", "t-q1-0"]))
        await client.invoke(Op("send", [["send", "t-q0-0", 1]]))
        assert (await until_read(client)).value == [["poll", {"t-q0-0": [[1, 1]]}]]
        assert (await client.invoke(Op("crash"))).kind is EventKind.INFO
        await client.invoke(Op("assign", ["t-q0-0"]))
        assert (await until_read(client)).value[0][1]["t-q0-0"][0] == [0, 0]


async def test_a_commit_that_is_refused_fails_the_poll_and_takes_it_back(
    ottla_cluster: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of(ottla_cluster, "queue", OWN) as client:
        await client.invoke(Op("send", [["send", "t-q0-0", 5]]))
        await client.invoke(Op("subscribe", ["t-q0"]))
        with monkeypatch.context() as patch:

            async def refuse(*_: Any) -> PendingCommit:
                await trio.lowlevel.checkpoint()
                raise RefusedError(ErrorCode.REBALANCE_IN_PROGRESS)

            patch.setattr(Consumer, "commit", refuse)
            failed = await until_read(client)
        assert failed.kind is EventKind.FAIL
        assert failed.value == [["poll", {"t-q0-0": [[0, 5]]}]]
        assert failed.extra["refused"]
        again = await until_read(client)
        assert (again.kind, again.value) == (EventKind.OK, failed.value)
        assert again.extra["mode"] == "subscribe"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("f", ["leave", "crash"])
async def test_who_leaves_is_gone_and_who_crashes_is_missed(
    f: str, kind: str, ottla_cluster: ClusterUnderTest
) -> None:
    notes: list[tuple[str, Json]] = []
    join = {"group": "t-g", "topics": ["t-group-0"], "protocol": RANGE, "instance": None}
    async with client_of(ottla_cluster, "group", kind, notes) as client:
        await client.invoke(Op("join", join))
        with trio.fail_after(TIMEOUT_S):
            while not notes:
                await client.invoke(Op("poll", {"group": "t-g"}))
        name, value = notes[0]
        assert name == "assigned"
        assert value["keys"] == [f"t-group-0-{index}" for index in range(4)]
        assert value["member"]
        assert (value["generation"] is None) == (kind == CONFLUENT)
        await client.invoke(Op(f, {"group": "t-g"}))
        async with open_admin(ottla_cluster.bootstrap) as admin:
            members = (await admin.describe_group("t-g")).members
        assert len(members) == (f == "crash")
        assert (await client.invoke(Op("poll", {"group": "t-g"}))).kind is EventKind.FAIL
        if f == "leave":
            assert [name for name, _ in notes] == ["assigned", "revoked"]
            assert notes[1][1]["member"] == value["member"]


async def test_a_member_of_librdkafka_is_not_asked_who_it_is_while_it_closes(
    ottla_cluster: ClusterUnderTest,
) -> None:
    class ClosingMember:
        def memberid(self) -> str:
            raise AssertionError("it may never answer")

    notes: list[tuple[str, Json]] = []
    join = {"group": "t-g", "topics": ["t-group-0"], "protocol": RANGE, "instance": None}
    async with client_of(ottla_cluster, "group", CONFLUENT, notes) as client:
        assert isinstance(client, ConfluentGroupClient)
        await client.invoke(Op("join", join))
        with trio.fail_after(TIMEOUT_S):
            while not notes:
                await client.invoke(Op("poll", {"group": "t-g"}))
        await trio.to_thread.run_sync(client._record, "revoked", ClosingMember(), [])
        assert notes[1] == ("revoked", {**notes[0][1], "keys": []})


@pytest.mark.parametrize("kind", KINDS)
async def test_a_member_commits_what_it_has_read(
    kind: str, ottla_cluster: ClusterUnderTest
) -> None:
    join = {"group": "t-g", "topics": ["t-group-0"], "protocol": CONSUMER, "instance": None}
    async with client_of(ottla_cluster, "group", kind) as client:
        await client.invoke(Op("send", [["send", "t-group-0-2", 0]]))
        await client.invoke(Op("join", join))
        with trio.fail_after(TIMEOUT_S):
            while not (read := await client.invoke(Op("poll", {"group": "t-g"}))).value["keys"]:
                pass
        assert read.value["keys"] == {"t-group-0-2": [[0, 0]]}
        done = await client.invoke(Op("commit", {"group": "t-g"}))
        assert (done.kind, done.value["keys"]) == (EventKind.OK, {"t-group-0-2": 1})
        assert (done.value["generation"] is None) == (kind == CONFLUENT)
        found = await client.invoke(Op("fetch", {"group": "t-g"}))
        assert found.value["keys"] == {"t-group-0-2": 1}
        node = ottla_cluster.bootstrap if kind == OWN else None
        assert done.extra.get("node") == found.extra.get("node") == node


@pytest.mark.parametrize("kind", KINDS)
async def test_a_members_refused_commit_may_have_been_done(
    kind: str, ottla_cluster: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both clients retry by themselves, and only the last response is reported."""

    async def refuse(*_: Any) -> PendingCommit:
        await trio.lowlevel.checkpoint()
        raise RefusedError(ErrorCode.STALE_MEMBER_EPOCH)

    class RefusedMember:
        """A member of librdkafka's to which the last answer was this."""

        def commit(self, **_: Any) -> None:
            raise KafkaException(KafkaError(KafkaError.STALE_MEMBER_EPOCH))

        def memberid(self) -> str:
            return "m"

        def poll(self, timeout_s: float) -> None:
            pass

        def close(self) -> None:
            pass

    join = {"group": "t-g", "topics": ["t-group-0"], "protocol": CONSUMER, "instance": None}
    async with client_of(ottla_cluster, "group", kind) as client:
        await client.invoke(Op("send", [["send", "t-group-0-2", 0]]))
        await client.invoke(Op("join", join))
        with trio.fail_after(TIMEOUT_S):
            while not (await client.invoke(Op("poll", {"group": "t-g"}))).value["keys"]:
                pass
        monkeypatch.setattr(Consumer, "commit", refuse)
        if isinstance(client, ConfluentClient):
            client.handles = {"producer": client.handles["producer"], "member": RefusedMember()}
        done = await client.invoke(Op("commit", {"group": "t-g"}))
    assert (done.kind, done.value["keys"]) == (EventKind.INFO, {"t-group-0-2": 1})
    assert done.extra["refused"] is True


@pytest.mark.parametrize("kind", KINDS)
async def test_a_members_commit_that_hangs_tells_what_it_may_have_done(
    kind: str, ottla_cluster: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()

    async def hang(*_: Any) -> PendingCommit:
        await trio.sleep_forever()
        raise AssertionError

    class HangingMember:
        """A member of librdkafka whose commit never returns."""

        def commit(self, **_: Any) -> None:
            may_end.wait()

        def memberid(self) -> str:
            return "m"

        def poll(self, timeout_s: float) -> None:
            pass

    join = {"group": "t-g", "topics": ["t-group-0"], "protocol": CONSUMER, "instance": None}
    async with client_of(ottla_cluster, "group", kind) as client:
        await client.invoke(Op("send", [["send", "t-group-0-2", 0]]))
        await client.invoke(Op("join", join))
        with trio.fail_after(TIMEOUT_S):
            while not (await client.invoke(Op("poll", {"group": "t-g"}))).value["keys"]:
                pass
        for module in (confluent, own):
            monkeypatch.setattr(module, "DEADLINE_S", 0.2)
            monkeypatch.setattr(module, "GRACE_S", 0.0)
        monkeypatch.setattr(Consumer, "commit", hang)
        if isinstance(client, ConfluentClient):
            client.handles = {"member": HangingMember()}
        done = await client.invoke(Op("commit", {"group": "t-g"}))
        may_end.set()
    assert (done.kind, done.value["keys"]) == (EventKind.INFO, {"t-group-0-2": 1})


@pytest.mark.parametrize("kind", KINDS)
async def test_a_register_holds_what_was_committed_last(
    kind: str, ottla_cluster: ClusterUnderTest
) -> None:
    async with client_of(ottla_cluster, "offsets", kind) as client:
        fetch = Op("fetch", ["t-r", "t-offsets-0", None])
        assert (await client.invoke(fetch)).value == ["t-r", "t-offsets-0", None]
        for offset in (9, 4):
            done = await client.invoke(Op("commit", ["t-r", "t-offsets-0", offset]))
            assert done.kind is EventKind.OK
            found = await client.invoke(fetch)
            assert found.value == ["t-r", "t-offsets-0", offset]
            node = ottla_cluster.bootstrap if kind == OWN else None
            assert done.extra.get("node") == found.extra.get("node") == node
        # A refusal comes before anything is written; librdkafka may hide an earlier attempt.
        nowhere = await client.invoke(Op("commit", ["t-r", "t-nowhere-0", 1]))
        assert nowhere.kind is (EventKind.FAIL if kind == OWN else EventKind.INFO)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_topic_that_is_there_already_may_be_ones_own(
    kind: str, ottla_cluster: ClusterUnderTest
) -> None:
    async with client_of(ottla_cluster, "metadata", kind) as client:
        create = Op("create", {"topic": "t-m", "count": 2})
        made = await client.invoke(create)
        assert made.kind is EventKind.OK
        again = await client.invoke(create)
        assert (again.kind, again.extra["refused"]) == (EventKind.INFO, True)
        nowhere = Op("set-config", {"topic": "t-no", "config": {"retention.ms": "1"}})
        assert (await client.invoke(nowhere)).kind is EventKind.FAIL
        wider = await client.invoke(Op("partitions", {"topic": "t-m", "count": 3}))
        setting = {"topic": "t-m", "config": {"retention.ms": "86400007"}}
        changed = await client.invoke(Op("set-config", setting))
        assert wider.kind is changed.kind is EventKind.OK
    async with client_of(ottla_cluster, "metadata", OWN) as reader:
        response = await reader.invoke(Op("describe", {"topic": "t-m", "part": "topic"}))
        assert response.value == {"topic": "t-m", "broker": 1, "id": made.value["id"], "count": 3}
        response = await reader.invoke(Op("describe", {"topic": "t-m", "part": "config"}))
        assert response.value == {**setting, "broker": 1}
        await reader.invoke(Op("delete", {"topic": "t-m"}))
        response = await reader.invoke(Op("describe", {"topic": "t-m", "part": "topic"}))
        assert response.value == {"topic": "t-m", "broker": 1, "id": None, "count": None}
        response = await reader.invoke(Op("describe", {"topic": "t-m", "part": "config"}))
        assert response.value == {"topic": "t-m", "broker": 1, "config": None}


async def test_what_begins_with_the_prefix_is_cleared_away_and_nothing_else(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with open_admin(ottla_cluster.bootstrap) as admin:
        for name in ("mine", "t-1", "t-2"):
            await admin.create_topic(name, partition_count=1)
        for group in ("mine", "t-g"):
            await admin.alter_group_offsets(group, {TopicPartition("mine", 0): 1})
        assert await clear_away(ottla_cluster.bootstrap, "t-") == 3
        assert await admin.list_topics() == ["mine"]
        assert [group.group_id for group in await admin.list_groups()] == ["mine"]


async def test_the_outcome_of_an_unanswered_write_is_unknown() -> None:
    workload = WORKLOADS["producer-ids"](LoadPlan(kinds=(OWN,)))
    async with workload.open_client("127.0.0.1:1", 0, lambda f, value: None) as client:
        done = await client.invoke(Op("init"))
    assert done.kind is EventKind.INFO


async def test_a_library_that_hangs_costs_one_operation_and_blocks_no_other(
    ottla_cluster: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confluent, "DEADLINE_S", 0.3)
    monkeypatch.setattr(confluent, "GRACE_S", 0.0)
    monkeypatch.setattr(confluent, "DROP_S", 0.2)
    may_end = threading.Event()

    class HangingMember:
        """A handle that hangs in whatever is done to it, its end included."""

        def poll(self, timeout_s: float) -> None:
            may_end.wait()

        def __del__(self) -> None:
            may_end.wait()

    async with client_of(ottla_cluster, "queue", CONFLUENT) as client:
        assert isinstance(client, ConfluentClient)
        client.handles["reader"] = HangingMember()
        with trio.fail_after(TIMEOUT_S):
            done = await client.invoke(Op("poll", [["poll"]]))
            assert (done.kind, done.value) == (EventKind.FAIL, None)
            client.handles["reader"] = HangingMember()
            assert (await client.invoke(Op("crash"))).kind is EventKind.INFO
            monkeypatch.undo()
            assert (await client.invoke(Op("send", [["send", "t-q0-0", 0]]))).kind is EventKind.OK
        may_end.set()


async def is_assigned(admin: Admin, group: str) -> bool:
    """Return whether the group exists and a member has an assignment."""
    try:
        return any(member.assignment for member in (await admin.describe_group(group)).members)
    except RefusedError as error:
        assert error.code is ErrorCode.GROUP_ID_NOT_FOUND
        return False


async def test_a_member_without_an_assignment_ends_too(
    ottla_cluster: ClusterUnderTest,
) -> None:
    """librdkafka would wait for the callback forever, and spin meanwhile."""
    join = {"group": "t-g", "topics": ["t-group-0"], "protocol": CONSUMER, "instance": None}
    notes: list[tuple[str, Json]] = []
    async with client_of(ottla_cluster, "group", CONFLUENT, notes) as client:
        assert isinstance(client, ConfluentClient)
        await client.invoke(Op("join", join))
        async with open_admin(ottla_cluster.bootstrap) as admin:
            with trio.fail_after(TIMEOUT_S):
                while not await is_assigned(admin, "t-g"):
                    await trio.sleep(0.05)
        handles = dict(client.handles)
        client.handles.clear()
        await trio.sleep(1)  # librdkafka has it by then, and waits to be asked
        with trio.fail_after(TIMEOUT_S):
            await trio.to_thread.run_sync(confluent.close_handles, handles, abandon_on_cancel=True)
    assert [f for f, _ in notes] == ["assigned"]


async def test_what_may_be_sent_still_goes_with_its_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka would renumber it after a time-out of another message: its outcome is unknown."""
    kinds = iter([EventKind.OK, EventKind.FAIL, EventKind.INFO])

    def send_one(producer: object, op: Op, record_key: None) -> Completion:
        return Completion(next(kinds), None)

    monkeypatch.setattr(confluent_queue, "send_one", send_one)
    workload = WORKLOADS["queue"](LoadPlan(kinds=(CONFLUENT,)))
    async with workload.open_client("127.0.0.1:1", 0, lambda f, value: None) as client:
        assert isinstance(client, ConfluentClient)
        await client.invoke(Op("assign", ["t-q0-0"]))
        for expected in ({"reader", "producer"}, {"reader", "producer"}, {"reader"}):
            await client.invoke(Op("send", [["send", "t-q0-0", 0]]))
            assert client.handles.keys() == expected


async def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    workload = WORKLOADS["queue"](LoadPlan(kinds=(CONFLUENT,)))
    with pytest.raises(ConfigError, match="needs the package confluent-kafka"):
        async with workload.open_client("127.0.0.1:1", 0, lambda f, value: None):
            pass


@pytest.mark.parametrize("kind", KINDS)
async def test_a_log_ends_behind_what_was_acknowledged(
    kind: str, ottla_cluster: ClusterUnderTest
) -> None:
    async with client_of(ottla_cluster, "list-offsets", kind) as client:
        for end in (0, 1, 2):
            response = await client.invoke(Op("end-offset", ["t-q0-1", None]))
            assert response.value == ["t-q0-1", end]
            assert response.extra["leader_epoch"] == 0
            # A client beside the sending one can not know what that one knows.
            assert response.extra.get("own_view", True) == (kind == OWN)
            await client.invoke(Op("send", [["send", "t-q0-1", end]]))
