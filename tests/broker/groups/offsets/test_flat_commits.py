"""Commits read by the flat codec: the same responses, logs and offsets as by the generated one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.bench.requests import frame_of
from ottla.broker.groups.offsets.offset_commit_api import (
    COMMITTERS_MAX,
    CommitForm,
    OffsetCommitApi,
)
from ottla.jepsen.fuzz.mini_broker import PARTITION_COUNT, TOPIC, MiniBroker, id_of
from ottla.model.internal_topics import OFFSETS_TOPIC
from ottla.model.limits import KIB, MIB
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.wire.apis import OFFSET_COMMIT
from ottla.wire.codec import decode
from ottla.wire.flat.flat_commit import FlatCommit, read_flat_commit
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.search_length import length

VERSIONS = range(8, 11)
GROUP = "g"
HEADER_BYTES = 4 + 4 + 1
"""Of an answer with tagged fields: its length, the correlation id, and none of them."""


def row(index: int = 0, offset: int = 7, **rest: Any) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, **rest)


def frame(
    *rows: OffsetCommitRequestPartition,
    version: int = 9,
    name: str = TOPIC,
    topic_id: UUID | None = None,
    topic_count: int = 1,
    group_id: str = GROUP,
    **who: Any,
) -> bytes:
    topic = OffsetCommitRequestTopic(
        name=name, topic_id=topic_id or id_of(TOPIC), partitions=list(rows or (row(),))
    )
    return frame_of(
        OffsetCommitRequest(group_id=group_id, topics=[topic] * topic_count, **who), version
    )


BYTES_PER_BROKER = 16
"""Bytes that are changed, one after the other, before the brokers are replaced."""


class BothCodecs:
    """Two brokers, one of which reads every request with the generated codec."""

    def __init__(self) -> None:
        self.flat = MiniBroker(frame_bytes_max=MIB)
        self.usual = MiniBroker(frame_bytes_max=MIB)
        api = OffsetCommitApi(self.usual.core.groups, self.usual.core.metadata)
        self.usual.dispatcher.register(OFFSET_COMMIT, api.handle)

    def reconnect(self) -> None:
        """Give both brokers a new connection."""
        self.flat.reconnect()
        self.usual.reconnect()

    def take(self, data: bytes) -> bytes:
        """Have both serve the bytes, hold them to the same, and return the answer."""
        found = [
            (broker.take(bytearray(data), MIB), _state_of(broker))
            for broker in (self.flat, self.usual)
        ]
        assert found[0] == found[1]
        assert not self.flat.faults
        assert not self.usual.faults
        return found[0][0]

    def join_classic(self) -> tuple[str, int]:
        """Return a member of a classic group that has no assignment yet."""
        asked = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0")],
        )
        answer = self.take(frame_of(asked, 6))
        asked.member_id = decode(JoinGroupResponse, 6, answer[HEADER_BYTES:]).member_id
        joined = decode(JoinGroupResponse, 6, self.take(frame_of(asked, 6))[HEADER_BYTES:])
        assert not joined.error_code
        return joined.member_id, joined.generation_id

    def sync(self, member_id: str, generation_id: int) -> None:
        one = SyncGroupRequestAssignment(member_id=member_id, assignment=b"a")
        request = SyncGroupRequest(
            group_id=GROUP, generation_id=generation_id, member_id=member_id, assignments=[one]
        )
        self.take(frame_of(request, 4))

    def join_consumers(self) -> tuple[str, int]:
        """Return a member of a group of the consumer protocol."""
        asked = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id="member-0000000000000000",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        answer = self.take(frame_of(asked, 1))
        response = decode(ConsumerGroupHeartbeatResponse, 1, answer[HEADER_BYTES:])
        assert not response.error_code
        return str(response.member_id), response.member_epoch


def _state_of(broker: MiniBroker) -> list[Any]:
    """Return the content of a broker's log and the state of its coordinator."""
    state: list[Any] = [broker._channel.connection.is_closed]
    for _, partition in sorted(broker.table.by_name[OFFSETS_TOPIC].items()):
        assert partition.log is not None
        for segment in partition.log.segments:
            state.append(bytes(segment.file.pread(0, segment.size_bytes)))
    for shard in broker.core.groups.shards():
        state += [(place, offset.as_value().__repr__()) for *place, offset in shard.offsets]
        state += [(name, group.state_name) for name, group in shard.groups.items()]
    return state


REQUESTS: dict[str, Callable[[int], bytes]] = {
    "one": lambda version: frame(version=version),
    "both partitions": lambda version: frame(row(0, 5), row(1, 6), version=version),
    "one twice": lambda version: frame(row(0, 5), row(0, 6), version=version),
    "metadata": lambda version: frame(row(committed_metadata="where: ä"), version=version),
    "no metadata": lambda version: frame(row(committed_metadata=None), version=version),
    "long metadata": lambda version: frame(row(committed_metadata="m" * 126), version=version),
    "longer metadata": lambda version: frame(row(committed_metadata="m" * 127), version=version),
    "too large": lambda version: frame(row(committed_metadata="m" * 5_000), version=version),
    "an epoch": lambda version: frame(row(committed_leader_epoch=3), version=version),
    "a negative offset": lambda version: frame(row(offset=-1), version=version),
    "some unknown": lambda version: frame(row(0), row(PARTITION_COUNT), version=version),
    "negative": lambda version: frame(row(-1), version=version),
    "many": lambda version: frame(*[row(at % 2, at) for at in range(50)], version=version),
    "more": lambda version: frame(*[row(at % 2, at) for at in range(51)], version=version),
    "no topic": lambda version: frame(version=version, topic_count=0),
    "two topics": lambda version: frame(version=version, topic_count=2),
    "unknown topic": lambda version: frame(version=version, name="x", topic_id=UUID(int=9)),
    "nameless": lambda version: frame(version=version, name="", topic_id=UUID(int=0)),
    "no group": lambda version: frame(version=version, group_id=""),
    "long group": lambda version: frame(version=version, group_id="g" * 126),
    "longer group": lambda version: frame(version=version, group_id="g" * 127),
    "too long a group": lambda version: frame(version=version, group_id="g" * 9_000),
    "another group": lambda version: frame(version=version, group_id="ä"),
    "a generation": lambda version: frame(version=version, generation_id_or_member_epoch=1),
    "a member": lambda version: frame(version=version, member_id="m"),
    "an instance": lambda version: frame(version=version, group_instance_id="i"),
    "an empty instance": lambda version: frame(version=version, group_instance_id=""),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", REQUESTS)
def test_both_codecs_answer_in_the_same_bytes_and_write_the_same(name: str, version: int) -> None:
    both = BothCodecs()
    for _ in range(3):
        assert both.take(frame(version=version))
        both.take(REQUESTS[name](version))


@pytest.mark.parametrize("version", VERSIONS)
def test_commits_of_one_turn_are_one_batch_with_both_codecs(version: int) -> None:
    both = BothCodecs()
    data = frame(version=version) + REQUESTS["both partitions"](version) + frame(version=version)
    both.take(data)
    log = both.flat.table.by_name[OFFSETS_TOPIC]
    assert sum(each.log.end_offset for each in log.values() if each.log is not None) == 4


@pytest.mark.parametrize("version", VERSIONS)
def test_a_member_of_a_classic_group_is_checked_with_both_codecs(version: int) -> None:
    both = BothCodecs()
    member_id, generation_id = both.join_classic()
    before = frame(
        version=version, member_id=member_id, generation_id_or_member_epoch=generation_id
    )
    rebalancing = both.take(before)
    both.sync(member_id, generation_id)
    assert both.take(before) != rebalancing
    for member, generation, instance in (
        (member_id, generation_id, "i"),
        (member_id, generation_id + 1, None),
        (member_id, -1, None),
        ("", -1, None),
        ("m", generation_id, None),
    ):
        answer = both.take(
            frame(
                version=version,
                member_id=member,
                generation_id_or_member_epoch=generation,
                group_instance_id=instance,
            )
        )
        assert answer != both.take(before)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_member_of_a_consumer_group_is_checked_with_both_codecs(version: int) -> None:
    both = BothCodecs()
    member_id, epoch = both.join_consumers()
    for member, at_epoch in ((member_id, epoch), (member_id, epoch + 1), ("m", epoch), ("", -1)):
        both.take(frame(version=version, member_id=member, generation_id_or_member_epoch=at_epoch))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_changed_byte_has_the_same_outcome_with_both_codecs(version: int) -> None:
    sound = frame(row(0, committed_metadata="m"), row(1), version=version, group_instance_id="i")
    for at in range(4, len(sound)):
        if (at - 4) % BYTES_PER_BROKER == 0:
            both = BothCodecs()
        both.reconnect()
        both.take(sound)
        for value in (0, 1, 2, 0x7F, 0x80, 0xFF):
            changed = bytearray(sound)
            changed[at] = value
            both.take(bytes(changed))


@settings(max_examples=length(50, 150), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), version=st.sampled_from(VERSIONS))
def test_hostile_frames_have_the_same_outcome_with_both_codecs(
    data: st.DataObject, version: int
) -> None:
    sound = frame(
        row(0, committed_metadata="mm"), row(1), version=version, member_id="m", name=TOPIC
    )[4:]
    both = BothCodecs()
    for _ in range(3):
        hostile = bytearray(sound)
        for _ in range(data.draw(st.integers(0, 4))):
            at = data.draw(st.integers(8, len(hostile) - 1))
            match data.draw(st.sampled_from(("set", "insert", "remove", "cut"))):
                case "set":
                    hostile[at] = data.draw(st.integers(0, 255))
                case "insert":
                    hostile[at:at] = data.draw(st.binary(max_size=4))
                case "remove":
                    del hostile[at : at + data.draw(st.integers(1, 4))]
                case _:
                    del hostile[max(at, 20) :]
            if len(hostile) < 20:
                break
        both.take(len(hostile).to_bytes(4, "big") + hostile)


def test_bytes_behind_the_body_are_passed_over_with_both_codecs() -> None:
    both = BothCodecs()
    sound = frame()
    both.take((len(sound) - 1).to_bytes(4, "big") + sound[4:] + b"\0\0\0")


def _flat_only(broker: MiniBroker) -> OffsetCommitApi:
    """Have a broker serve commits that are read flat, and none else."""
    api = OffsetCommitApi(broker.core.groups, broker.core.metadata)

    def handle(context: RequestContext, request: CommitForm) -> HandlerResult:
        assert isinstance(request, FlatCommit)
        return api.handle(context, request)

    broker.dispatcher.register(OFFSET_COMMIT, handle, read_flat=read_flat_commit)
    return api


@pytest.mark.parametrize("version", VERSIONS)
def test_a_usual_commit_is_read_flat(version: int) -> None:
    broker = MiniBroker(frame_bytes_max=64 * KIB)
    _flat_only(broker)
    for name in ("one", "both partitions", "metadata", "no metadata", "many", "a member"):
        assert broker.take(REQUESTS[name](version), MIB)
    assert not broker.faults


def test_the_number_of_remembered_committers_is_bounded() -> None:
    broker = MiniBroker()
    api = _flat_only(broker)
    for at in range(COMMITTERS_MAX + 2):
        assert broker.take(frame(group_id=f"g{at}"), MIB)
    assert len(api._by_name) == 2
    assert not broker.faults


def test_a_topic_that_is_gone_is_not_taken_from_memory() -> None:
    broker = MiniBroker()
    metadata = broker.core.metadata
    found = broker.take(frame(), MIB)
    image = metadata.image
    metadata.image = replace(
        image,
        topics=image.topics.delete(id_of(TOPIC)),
        topic_ids=image.topic_ids.delete(TOPIC),
    )
    assert broker.take(frame(), MIB) != found
