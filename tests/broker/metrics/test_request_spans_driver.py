"""How many traces become spans, where more finish than that."""

import pytest
import trio
from trio.testing import MockClock

pytest.importorskip("opentelemetry.sdk")

from ottla.broker.metrics import request_spans_driver
from ottla.broker.metrics.request_spans_driver import send_request_spans
from ottla.broker.network.dispatch import Peer
from ottla.broker.network.request_traces import TRACES_HELD_MAX, RequestTraces
from ottla.model.settings.exporters import ExporterConfig
from ottla.node.clock_driver import RealRng
from ottla.wire.apis import PRODUCE
from ottla.wire.headers import RequestHeader

PEER = Peer(
    connection_id=1,
    listener_name="PLAINTEXT",
    peer_host="10.0.0.9",
    peer_port=40_000,
    local_host="10.0.0.1",
    local_port=9092,
)
SECONDS = 3


async def test_what_a_second_costs_is_bounded_however_many_requests_are_traced(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    traces = RequestTraces(1.0, RealRng(), now_ns=lambda: 0)
    written = 0

    def finish_one() -> None:
        header = RequestHeader(PRODUCE, 9, 1, "shop", 0)
        trace = traces.begin(header, PEER, context=None, received_ns=1, taken_ns=2)
        assert trace is not None
        traces.finish(trace)

    def write_spans(*_: object) -> None:
        nonlocal written
        written += 1
        assert written < 100 * TRACES_HELD_MAX, "it never ends"
        finish_one()

    monkeypatch.setattr(request_spans_driver, "write_spans", write_spans)
    monkeypatch.setattr(request_spans_driver, "SLICE_NS", 0)
    for _ in range(2 * TRACES_HELD_MAX):
        finish_one()
    with trio.move_on_after(SECONDS + 0.5):
        await send_request_spans(
            traces,
            ExporterConfig(),
            attributes={"service.version": "1"},
            now_ns=lambda: 0,
        )
    # Each second, and what was left at the end.
    assert written == (SECONDS + 1) * TRACES_HELD_MAX
