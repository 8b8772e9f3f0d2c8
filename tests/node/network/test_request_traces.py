"""Sampling and timing of request traces, on a connection driven by the test."""

import random
from uuid import UUID

import pytest

from ottla.model.errors import ErrorCode
from ottla.node.network.request_traces import (
    TRACES_HELD_MAX,
    RequestTrace,
    RequestTraces,
    error_in,
)
from ottla.wire.apis import METADATA, PRODUCE
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.fetch_response import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from ottla.wire.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from ottla.wire.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

CONTEXT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Chance:
    def __init__(self) -> None:
        self._random = random.Random(3)

    def random(self) -> float:
        return self._random.random()

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def uuid(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)


class Peer:
    listener_name = "PLAINTEXT"
    peer_host = "10.0.0.9"
    peer_port = 4_000


class Stopwatch:
    now_ns = 0


def header_of(api_key: int) -> RequestHeader:
    return RequestHeader(api_key=api_key, api_version=9, client_id="shop", body_at=0)


def begun(
    traces: RequestTraces, api_key: int = METADATA, context: bytes | None = None
) -> RequestTrace | None:
    return traces.begin(header_of(api_key), Peer(), context=context, received_ns=10, taken_ns=12)


@pytest.mark.parametrize("ratio", [0.01, 0.1, 0.5, 1.0])
def test_the_configured_ratio_of_requests_is_traced(ratio: float) -> None:
    traces = RequestTraces(ratio, Chance(), now_ns=lambda: 0)
    count = 20_000

    traced = sum(begun(traces) is not None for _ in range(count))

    assert traced == pytest.approx(ratio * count, rel=0.2)


def test_every_request_of_a_span_that_is_recorded_is_traced() -> None:
    traces = RequestTraces(0.000_001, Chance(), now_ns=lambda: 0)

    found = [begun(traces, PRODUCE, CONTEXT) for _ in range(3)]

    assert [trace.parent for trace in found if trace is not None] == [CONTEXT.decode()] * 3
    assert begun(traces, PRODUCE) is None


@pytest.mark.parametrize(
    "context",
    [
        CONTEXT[:-2] + b"00",  # not recorded
        b"01" + CONTEXT[2:],
        CONTEXT.upper(),
        b"00-" + b"0" * 32 + CONTEXT[35:],
        CONTEXT[:36] + b"0" * 16 + b"-01",
        b"\xff" * 55,
        CONTEXT + b"\n",
        b"",
    ],
)
def test_what_is_no_context_of_a_recorded_span_changes_nothing(context: bytes) -> None:
    traces = RequestTraces(1.0, Chance(), now_ns=lambda: 0)
    trace = begun(traces, PRODUCE, context)
    assert trace is not None and trace.parent is None
    assert begun(RequestTraces(0.000_001, Chance(), now_ns=lambda: 0), PRODUCE, context) is None


def finished(api_key: int, handled_ns: int) -> RequestTrace:
    watch = Stopwatch()
    traces = RequestTraces(1.0, Chance(), now_ns=lambda: watch.now_ns)
    trace = begun(traces, api_key)
    assert trace is not None
    watch.now_ns = 20
    traces.answered(trace, handled_ns)
    watch.now_ns = 23
    traces.finish(trace)
    (found,) = traces.take(10)
    assert traces.take(10) == []
    return found


def test_a_produce_that_waits_has_all_four_parts_and_no_gap() -> None:
    trace = finished(PRODUCE, handled_ns=15)

    assert trace.name == "Produce"
    assert trace.attributes["messaging.client.id"] == "shop"
    assert trace.parts() == [
        ("receive", trace.received_ns, 12),
        ("append", 12, 15),
        ("replicate", 15, 20),
        ("answer", 20, trace.sent_ns),
    ]


def test_what_does_not_wait_has_no_such_part() -> None:
    trace = finished(METADATA, handled_ns=0)

    assert trace.name == "Metadata"
    assert [name for name, _, _ in trace.parts()] == ["receive", "handle", "answer"]


def test_traces_without_a_consumer_are_dropped_and_counted() -> None:
    traces = RequestTraces(1.0, Chance(), now_ns=lambda: 0)
    for _ in range(TRACES_HELD_MAX + 3):
        trace = begun(traces)
        assert trace is not None
        traces.finish(trace)

    assert traces.dropped_count == 3
    assert len(traces.take(10)) == 10
    assert len(traces.take(TRACES_HELD_MAX)) == TRACES_HELD_MAX - 10


def test_the_error_of_a_partition_is_that_of_its_produce_or_fetch() -> None:
    late = ErrorCode.REQUEST_TIMED_OUT
    produced = [
        PartitionProduceResponse(index=at, error_code=code) for at, code in ((0, 0), (1, late))
    ]
    fetched = [PartitionData(partition_index=0, error_code=late)]

    assert error_in(ProduceResponse()) == 0
    assert (
        error_in(ProduceResponse(responses=[TopicProduceResponse(partition_responses=produced)]))
        == late
    )
    assert error_in(FetchResponse(responses=[FetchableTopicResponse(partitions=fetched)])) == late
    assert error_in(FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)) == 71
    # What is not counted as a refusal of the request is none.
    unknown = MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert error_in(MetadataResponse(topics=[unknown])) == 0
