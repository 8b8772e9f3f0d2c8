"""Metrics of a share consumer have Java's names, and the values that were measured."""

from ottla.client.telemetry.share_metrics import ShareMeasures, ShareMetrics

PREFIX = "org.apache.kafka.consumer.share.fetch.manager."


def test_each_fetch_and_acknowledgement_is_counted() -> None:
    measures = ShareMeasures()
    metrics = ShareMetrics(measures, lambda: (7, 2))
    measures.note_fetch(latency_s=0.2, throttle_ms=0, size_bytes=100, record_count=4)
    measures.note_fetch(latency_s=0.4, throttle_ms=50, size_bytes=300, record_count=8)
    measures.note_fetch(latency_s=0.6, throttle_ms=0, size_bytes=0, record_count=0)
    found = {one.name.removeprefix(PREFIX): one.value for one in metrics.points(1.0)}
    assert {name: round(value, 3) for name, value in found.items()} == {
        "fetch.latency.avg": 400,
        "fetch.latency.max": 600,
        "fetch.throttle.time.avg": 16.667,
        "fetch.throttle.time.max": 50,
        "fetch.size.avg": 200,
        "fetch.size.max": 300,
        "records.per.request.avg": 4,
        "records.per.request.max": 8,
        "fetch.total": 3,
        "bytes.consumed.total": 400,
        "records.consumed.total": 12,
        "acknowledgements.send.total": 7,
        "acknowledgements.error.total": 2,
    }
    again = {one.name.removeprefix(PREFIX): one.value for one in metrics.points(1.0)}
    assert (again["fetch.latency.max"], again["fetch.total"]) == (0, 3)
