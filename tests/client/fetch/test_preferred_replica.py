"""A consumer's moves between the leader and the replica that the leader prefers (KIP-392)."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from ottla.client.fetch import fetch_link
from ottla.client.fetch.fetch_link import FetchLink, PartitionRequest
from ottla.client.fetch.positions import Positions
from ottla.client.network.cluster import KnownLeader
from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, NodeId, Offset, TopicPartition
from ottla.model.settings.client import ConsumerConfig
from ottla.model.settings.offset_reset import parse_offset_reset
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData

AT = TopicPartition("t", 0)
LEADER, NEAR, UNKNOWN = NodeId(1), NodeId(2), NodeId(9)
NOW_MS = 10_000


class Links:
    """A link to the leader and one to the near replica, over the same positions."""

    def __init__(self) -> None:
        self.positions = Positions(parse_offset_reset("earliest"), ahead_bytes=200)
        self.positions.assign([AT])
        self.positions.seek(AT, Offset(5))
        self.place = self.positions.place(AT)
        self.stale: list[str] = []
        self.moves = 0
        self.wakes: list[Callable[[], None]] = []
        self.config = ConsumerConfig(client_rack="b", metadata_age_ms_max=1_000)
        cluster: Any = SimpleNamespace(
            known_leader=lambda at: KnownLeader(LEADER, Epoch(1)),
            address_of=lambda node: None if node == UNKNOWN else ("host", 9092),
            topics={"t": SimpleNamespace(topic_id=UUID(int=5))},
        )
        self.leader, self.near = (
            FetchLink(
                node,
                cluster=cluster,
                positions=self.positions,
                config=self.config,
                on_records=lambda: None,
                on_moved=self._on_moved,
                on_stale=self.stale.append,
                on_failure=self._on_failure,
            )
            for node in (LEADER, NEAR)
        )

    def _on_moved(self) -> None:
        self.moves += 1
        for wake in self.wakes:
            wake()

    def _on_failure(self, error: Exception) -> None:
        raise error

    def answer(self, link: FetchLink, **fields: Any) -> bool:
        """Pass the response for the partition to a link.  Returns whether the next fetch waits."""
        data = PartitionData(partition_index=0, **fields)
        return link._take_partition(PartitionRequest(self.place), data)

    def sources(self) -> list[NodeId]:
        return [link.node for link in (self.leader, self.near) if link._wanted()]


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> Links:
    monkeypatch.setattr(fetch_link, "now_ms", lambda: NOW_MS)
    return Links()


def test_the_replica_that_the_leader_names_is_fetched_from(
    links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert links.sources() == [LEADER]
    assert not links.answer(links.leader, preferred_read_replica=NEAR)
    assert links.sources() == [NEAR]
    assert links.moves == 1

    monkeypatch.setattr(fetch_link, "now_ms", lambda: NOW_MS + links.config.metadata_age_ms_max)
    assert links.sources() == [LEADER], "the leader is asked again from time to time"


class Broker:
    """A connection to a broker that has no new records."""

    address = "host:9092"

    def __init__(self) -> None:
        self.asked_s: list[float] = []

    def version_of(self, api_key: int) -> int:
        return 17

    async def request(self, request: FetchRequest, kind: Any, version: int) -> FetchResponse:
        self.asked_s.append(trio.current_time())
        await trio.sleep(0.4)
        return FetchResponse(session_id=1)


async def test_the_link_to_the_leader_wakes_up_when_the_replica_is_not_preferred_any_longer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """No application polls, no record arrives, and no metadata is requested meanwhile."""
    links = Links()
    leader: Any = Broker()
    near: Any = Broker()
    links.wakes = [links.leader.wake_up.set, links.near.wake_up.set]
    links.answer(links.leader, preferred_read_replica=NEAR)  # for one second

    with trio.move_on_after(2):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(links.leader._serve, leader)
            nursery.start_soon(links.near._serve, near)

    assert near.asked_s == pytest.approx([0.0, 0.4, 0.8])
    assert leader.asked_s == pytest.approx([1.2, 1.6])


def test_a_replica_without_a_known_address_is_looked_up_first(links: Links) -> None:
    assert links.answer(links.leader, preferred_read_replica=UNKNOWN)
    assert links.stale == ["t"]
    assert links.sources() == [LEADER]


@pytest.mark.parametrize(
    ("code", "is_stale"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, True),
        (ErrorCode.FENCED_LEADER_EPOCH, True),
    ],
)
def test_after_an_error_of_the_replica_the_leader_decides(
    links: Links, code: ErrorCode, is_stale: bool
) -> None:
    links.answer(links.leader, preferred_read_replica=NEAR)

    assert not links.answer(links.near, error_code=code)

    assert links.sources() == [LEADER]
    assert links.place.position is not None, "the position is not reset"
    assert links.place.position.offset == 5
    assert links.stale == (["t"] if is_stale else [])


def test_a_lost_connection_leads_back_to_the_leader(links: Links) -> None:
    links.answer(links.leader, preferred_read_replica=NEAR)

    links.near._lose(ConnectionLostError("gone"))

    assert links.sources() == [LEADER]
