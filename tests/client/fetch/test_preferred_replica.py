"""A consumer's moves between the leader and the replica that the leader prefers (KIP-392)."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client.fetch import fetch_link
from ottla.client.fetch.fetch_link import FetchLink, PartitionRequest
from ottla.client.fetch.positions import Positions
from ottla.client.network.cluster import KnownLeader
from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, NodeId, Offset, TopicPartition
from ottla.model.settings.client import ConsumerConfig
from ottla.model.settings.offset_reset import parse_offset_reset
from ottla.wire.messages.fetch_response import PartitionData

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
        self.config = ConsumerConfig(client_rack="b", metadata_age_ms_max=1_000)
        cluster: Any = SimpleNamespace(
            known_leader=lambda at: KnownLeader(LEADER, Epoch(1)),
            address_of=lambda node: None if node == UNKNOWN else ("host", 9092),
            topics={"t": None},
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
