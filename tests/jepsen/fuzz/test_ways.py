"""How many modules a request passes through: docs/ARCHITECTURE.md walks these ways, and names them.

A way that gets longer is harder to read.  Raise a count only with a reason; lower it when you can.
"""

import sys
from types import FrameType

import pytest

from ottla.bench.requests import frame_of
from ottla.jepsen.fuzz.mini_broker import TOPIC, MiniBroker, id_of
from ottla.model.limits import MIB
from ottla.wire.batch_builder import build_batch
from ottla.wire.codec_types import Message
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

LABORATORY = ("ottla.jepsen.", "ottla.bench.")
WARM_UP = 2
"""Requests before the one that is traced: codecs are compiled at the first."""


def passed_modules(broker: MiniBroker, message: Message, version: int) -> set[str]:
    """Return the modules of ours in which a function is called while a request is answered."""
    data = frame_of(message, version)
    for _ in range(WARM_UP):
        broker.take(data, MIB)
    found: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            found.add(frame.f_globals.get("__name__", ""))

    sys.setprofile(note)
    try:
        answer = broker.take(data, MIB)
    finally:
        sys.setprofile(None)
    assert answer, "it was answered within the trace"
    return {name for name in found if name.startswith("ottla.") and not name.startswith(LABORATORY)}


def produce() -> tuple[Message, int]:
    data = [PartitionProduceData(index=0, records=build_batch([(1, None, b"v")]))]
    topic = TopicProduceData(name=TOPIC, partition_data=data)
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 12


def fetch_by_id() -> tuple[Message, int]:
    """As current clients ask: a few records are answered on a shorter way."""
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
    topic = FetchTopic(topic_id=id_of(TOPIC), partitions=[asked])
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic], max_bytes=MIB), 17


def fetch() -> tuple[Message, int]:
    """As old clients ask: it is offered to the shorter way first, which is one module more."""
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
    topic = FetchTopic(topic=TOPIC, partitions=[asked])
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic], max_bytes=MIB), 12


def create_topics() -> tuple[Message, int]:
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1_000, validate_only=True), 7


@pytest.mark.parametrize(
    ("way", "most"), [(produce, 24), (fetch_by_id, 17), (fetch, 25), (create_topics, 34)]
)
def test_no_way_through_the_house_gets_longer(way: object, most: int) -> None:
    assert callable(way)
    broker = MiniBroker(frame_bytes_max=MIB)
    broker.take(frame_of(*produce()), MIB)  # there is a record to be fetched
    modules = passed_modules(broker, *way())
    assert len(modules) <= most, "\n".join(sorted(modules))
