"""Some requests are traced, on a connection driven by hand."""

import random
from uuid import UUID

import pytest

from ottla.broker.network.request_traces import TRACES_HELD_MAX, RequestTrace, RequestTraces
from ottla.telemetry.spans import TraceSpan
from ottla.wire.apis import METADATA, PRODUCE
from ottla.wire.headers import RequestHeader

WALL_OFFSET_NS = 1_000_000


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
    return RequestHeader(
        api_key=api_key, api_version=9, correlation_id=1, client_id="shop", body_at=0
    )


def begun(traces: RequestTraces, api_key: int = METADATA) -> RequestTrace | None:
    return traces.begin(header_of(api_key), Peer(), received_ns=10, taken_ns=12)


@pytest.mark.parametrize("ratio", [0.01, 0.1, 0.5, 1.0])
def test_so_many_requests_are_traced_as_was_asked(ratio: float) -> None:
    traces = RequestTraces(ratio, Chance(), now_ns=lambda: 0)
    count = 20_000

    traced = sum(begun(traces) is not None for _ in range(count))

    assert traced == pytest.approx(ratio * count, rel=0.2)


def spans(api_key: int, handled_ns: int) -> list[TraceSpan]:
    watch = Stopwatch()
    traces = RequestTraces(1.0, Chance(), now_ns=lambda: watch.now_ns)
    trace = begun(traces, api_key)
    assert trace is not None
    watch.now_ns = 20
    traces.answered(trace, handled_ns)
    watch.now_ns = 23
    traces.finish(trace)
    found = traces.take(count_max=10, wall_offset_ns=WALL_OFFSET_NS)
    assert traces.take(count_max=10, wall_offset_ns=WALL_OFFSET_NS) == []
    return found


def test_a_produce_that_waits_has_all_four_parts_and_no_gap() -> None:
    root, *parts = spans(PRODUCE, handled_ns=15)

    assert root.name == "Produce"
    assert dict(root.attributes)["kafka.client.id"] == "shop"
    assert [part.name for part in parts] == ["receive", "append", "replicate", "answer"]
    instants = [root.start_ns, *(part.end_ns for part in parts)]
    assert [instant - WALL_OFFSET_NS for instant in instants] == [10, 12, 15, 20, 23]
    assert [part.start_ns for part in parts] == instants[:-1]
    assert root.end_ns == parts[-1].end_ns
    assert {part.parent_id for part in parts} == {root.span_id}
    assert len({span.span_id for span in (root, *parts)}) == 5
    assert len({span.trace_id for span in (root, *parts)}) == 1


def test_what_does_not_wait_has_no_such_part() -> None:
    assert [span.name for span in spans(METADATA, handled_ns=0)] == [
        "Metadata",
        "receive",
        "handle",
        "answer",
    ]


def test_traces_that_nobody_takes_are_dropped_and_counted() -> None:
    traces = RequestTraces(1.0, Chance(), now_ns=lambda: 0)
    for _ in range(TRACES_HELD_MAX + 3):
        trace = begun(traces)
        assert trace is not None
        traces.finish(trace)

    assert traces.dropped_count == 3
    assert len(traces.take(count_max=10, wall_offset_ns=0)) == 40
