"""Produce and Fetch of clients with access to some topics: partitions withheld, and when."""

from typing import Any
from uuid import UUID

import pytest

from ottla.broker.logs.fetch_session import CHECKED_AGAIN
from ottla.broker.replicas.partition import Partition
from ottla.model.errors import ErrorCode
from ottla.model.security.acls import CLUSTER_NAME
from ottla.wire.apis import PRODUCE
from ottla.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import ProduceResponse

World = Any  # the class of the `world` fixture, in conftest.py
Authorizer = Any  # the class of the `authorizer` fixture there
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
READ_OPEN, WRITE_OPEN = "READ TOPIC open", "WRITE TOPIC open"


@pytest.fixture
def guarded(world: World, authorizer: Authorizer) -> World:
    """The world with the authorizer in force."""
    world.authorization.use(authorizer)
    return world


def produced(world: World, *topics: str, acks: int = 1, **changes: Any) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=1_000,
        topic_data=[
            TopicProduceData(
                topic_id=world.table.image.topic_ids.get(topic, UUID(int=99)),
                partition_data=[PartitionProduceData(index=0, records=world.batch(b"v"))],
            )
            for topic in topics
        ],
        **changes,
    )


def fetched(
    world: World,
    *topics: str,
    session: tuple[int, int] = (0, -1),
    wait_ms: int = 0,
    replica: int = -1,
) -> FetchRequest:
    return FetchRequest(
        replica_state=ReplicaState(replica_id=replica, replica_epoch=10 if replica >= 0 else -1),
        max_wait_ms=wait_ms,
        min_bytes=1,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchTopic(
                topic_id=world.table.image.topic_ids.get(topic, UUID(int=99)),
                partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)],
            )
            for topic in topics
        ],
    )


def append(world: World, partition: Partition) -> None:
    partition.append(world.batch(b"v"), acks=1, now_ms=world.clock.wall_ms(), mono_ms=1_000)


def codes(world: World, call: Any, kind: Any = FetchResponse) -> dict[str, int]:
    """Return the codes of an answer by the names of its topics."""
    answer = call.response(kind)
    parts = {
        topic.topic_id: (topic.partition_responses if kind is ProduceResponse else topic.partitions)
        for topic in answer.responses
    }
    return {
        world.topic_name(topic_id) or "": found[0].error_code for topic_id, found in parts.items()
    }


async def test_a_topic_that_may_not_be_written_is_kept_from_its_log(
    guarded: World, authorizer: Authorizer
) -> None:
    open_one, closed = await guarded.add("open"), await guarded.add("closed")
    authorizer.allow(WRITE_OPEN)
    call = guarded.produce(produced(guarded, "closed", "open"))
    assert codes(guarded, call, ProduceResponse) == {"open": 0, "closed": REFUSED}
    assert (open_one.leader_log().end_offset, closed.leader_log().end_offset) == (1, 0)
    assert guarded.refusals == [(PRODUCE, REFUSED)]


async def test_an_answer_that_waits_for_replicas_still_has_what_was_refused(
    guarded: World, authorizer: Authorizer
) -> None:
    await guarded.add("open", replicas=(1, 2))
    await guarded.add("closed")
    authorizer.allow(WRITE_OPEN)
    call = guarded.produce(produced(guarded, "closed", "open", acks=-1))
    assert not call.is_completed
    guarded.pass_time(1_001)
    found = codes(guarded, call, ProduceResponse)
    assert found == {"open": ErrorCode.REQUEST_TIMED_OUT, "closed": REFUSED}


async def test_a_producer_without_acks_is_hung_up_on_if_part_of_it_is_refused(
    guarded: World, authorizer: Authorizer
) -> None:
    open_one = await guarded.add("open")
    await guarded.add("closed")
    authorizer.allow(WRITE_OPEN)
    assert not guarded.produce(produced(guarded, "open", acks=0)).slot.closes_connection
    assert guarded.produce(produced(guarded, "open", "closed", acks=0)).slot.closes_connection
    assert guarded.produce(produced(guarded, "closed", acks=0)).slot.closes_connection
    assert open_one.leader_log().end_offset == 2


async def test_a_transactional_producer_needs_its_transactional_id(
    guarded: World, authorizer: Authorizer
) -> None:
    await guarded.add("open")
    authorizer.allow(WRITE_OPEN)
    asked = produced(guarded, "open", transactional_id="mine")
    found = codes(guarded, guarded.produce(asked), ProduceResponse)
    assert found == {"open": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    asked = produced(guarded, "open", transactional_id="mine", acks=0)
    assert guarded.produce(asked).slot.closes_connection
    authorizer.allow("WRITE TRANSACTIONAL_ID mine")
    asked = produced(guarded, "open", transactional_id="mine")
    assert codes(guarded, guarded.produce(asked), ProduceResponse) == {"open": 0}


async def test_a_topic_id_that_no_topic_has_is_unknown_not_refused(guarded: World) -> None:
    found = codes(guarded, guarded.produce(produced(guarded, "none")), ProduceResponse)
    assert found == {"": ErrorCode.UNKNOWN_TOPIC_ID}
    found = codes(guarded, guarded.fetch(fetched(guarded, "none")))
    assert found == {"": ErrorCode.UNKNOWN_TOPIC_ID}


async def test_each_allowed_topic_is_decided_once_for_a_connection(
    guarded: World, authorizer: Authorizer
) -> None:
    await guarded.add("open")
    authorizer.allow(WRITE_OPEN, READ_OPEN)
    guarded.produce(produced(guarded, *["open"] * 50))
    assert authorizer.asked == [("WRITE", "TOPIC", "open")]
    authorizer.asked.clear()
    guarded.produce(produced(guarded, *["open"] * 50))
    assert authorizer.asked == []
    request = fetched(guarded, "open")
    request.topics[0].partitions *= 50
    for index, one in enumerate(request.topics[0].partitions):
        one.partition = index
    guarded.fetch(request)
    assert authorizer.asked == [("READ", "TOPIC", "open")]


async def test_a_consumer_reads_its_permitted_topics_and_an_error_for_each_other(
    guarded: World, authorizer: Authorizer
) -> None:
    for name in ("open", "closed"):
        append(guarded, await guarded.add(name))
    authorizer.allow(READ_OPEN)
    call = guarded.fetch(fetched(guarded, "closed", "open"))
    assert codes(guarded, call) == {"open": 0, "closed": REFUSED}
    records = {
        guarded.topic_name(topic.topic_id): bool(topic.partitions[0].records)
        for topic in call.response(FetchResponse).responses
    }
    assert records == {"open": True, "closed": False}


async def test_what_is_revoked_is_not_read_by_an_open_session(
    guarded: World, authorizer: Authorizer
) -> None:
    partition = await guarded.add("open")
    authorizer.allow(READ_OPEN)
    first = guarded.fetch(fetched(guarded, "open", session=(0, 0))).response(FetchResponse)
    assert first.session_id
    authorizer.allowed.clear()
    guarded.authorization.use(authorizer)
    append(guarded, partition)
    call = guarded.fetch(fetched(guarded, session=(first.session_id, 1)))
    assert codes(guarded, call) == {"open": REFUSED}


async def test_a_fetch_session_reports_a_revoked_topic_that_is_idle(
    guarded: World, authorizer: Authorizer
) -> None:
    await guarded.add("open")
    authorizer.allow(READ_OPEN)
    first = guarded.fetch(fetched(guarded, "open", session=(0, 0))).response(FetchResponse)
    call = guarded.fetch(fetched(guarded, session=(first.session_id, 1)))
    assert codes(guarded, call) == {}
    authorizer.allowed.clear()
    guarded.authorization.use(authorizer)
    call = guarded.fetch(fetched(guarded, session=(first.session_id, 2)))
    assert codes(guarded, call) == {"open": REFUSED}
    authorizer.allow(READ_OPEN)
    guarded.authorization.use(authorizer)
    call = guarded.fetch(fetched(guarded, session=(first.session_id, 3)))
    assert codes(guarded, call) == {"open": 0}


async def test_a_session_of_many_partitions_looks_at_some_with_each_fetch(
    guarded: World, authorizer: Authorizer
) -> None:
    count = CHECKED_AGAIN + 100
    names = [f"t{number}" for number in range(count)]
    for name in names:
        await guarded.add(name, is_log_there=False)
    authorizer.allow(*(f"READ TOPIC {name}" for name in names))
    first = guarded.fetch(fetched(guarded, *names, session=(0, 0))).response(FetchResponse)
    session = guarded.sessions._sessions[first.session_id]
    session.due.clear()
    session.failed.clear()
    authorizer.allowed.clear()
    guarded.authorization.use(authorizer)
    errors = [
        len(codes(guarded, guarded.fetch(fetched(guarded, session=(first.session_id, epoch)))))
        for epoch in (1, 2)
    ]
    assert errors[0] == CHECKED_AGAIN
    assert errors[1] >= 100


async def test_a_fetch_that_waits_is_given_nothing_that_was_revoked_meanwhile(
    guarded: World, authorizer: Authorizer
) -> None:
    partition = await guarded.add("open")
    authorizer.allow(READ_OPEN)
    call = guarded.fetch(fetched(guarded, "open", wait_ms=500))
    authorizer.allowed.clear()
    guarded.authorization.use(authorizer)
    append(guarded, partition)
    guarded.pass_time(501)
    assert codes(guarded, call) == {"open": REFUSED}


async def test_a_refused_topic_does_not_end_the_wait_for_others(
    guarded: World, authorizer: Authorizer
) -> None:
    await guarded.add("open")
    await guarded.add("closed")
    authorizer.allow(READ_OPEN)
    call = guarded.fetch(fetched(guarded, "open", "closed", wait_ms=500))
    assert not call.is_completed
    assert guarded.fetch(fetched(guarded, "closed", wait_ms=500)).is_completed


async def test_a_follower_needs_an_action_of_the_cluster(
    guarded: World, authorizer: Authorizer
) -> None:
    partition = await guarded.add("open", replicas=(1, 2))
    append(guarded, partition)
    authorizer.allow(READ_OPEN)
    call = guarded.fetch(fetched(guarded, "open", replica=2))
    assert codes(guarded, call) == {"open": REFUSED}
    authorizer.allowed.clear()
    authorizer.allow(f"CLUSTER_ACTION CLUSTER {CLUSTER_NAME}")
    call = guarded.fetch(fetched(guarded, "open", replica=2))
    assert codes(guarded, call) == {"open": 0}
