"""Our text, read by Prometheus's own parser for Python."""

from collections.abc import Iterable
from math import inf, nan
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ottla.telemetry.clients.client_series import SeriesRow
from ottla.telemetry.metrics.instruments import Family, Histogram, MetricKind, Sample, Summary
from ottla.telemetry.metrics.prometheus_text import ROWS_PER_PIECE, number, render, render_all


def text_of(*families: Family | None) -> str:
    return b"".join(render(families)).decode()


def parsed(text: str) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def gauge(samples: Iterable[Sample | None], *labels: str) -> Family:
    return Family("ottla_x", MetricKind.GAUGE, "X.", labels, samples)


def test_counters_and_gauges_are_one_row_a_sample() -> None:
    text = text_of(
        Family("ottla_things_total", MetricKind.COUNTER, "Things.", (), (((), 2),)),
        gauge([(("a", "0"), 1), (("b", "1"), 2.5)], "topic", "partition"),
    )

    assert text == (
        "# HELP ottla_things_total Things.\n"
        "# TYPE ottla_things_total counter\n"
        "ottla_things_total 2\n"
        "# HELP ottla_x X.\n"
        "# TYPE ottla_x gauge\n"
        'ottla_x{topic="a",partition="0"} 1\n'
        'ottla_x{topic="b",partition="1"} 2.5\n'
    )


def test_one_row_without_labels_may_speak_of_all() -> None:
    text = text_of(gauge([((), 3), (("a",), 1), (("b",), 2)], "topic"))

    samples = parsed(text)["ottla_x"].samples
    assert [(sample.labels, sample.value) for sample in samples] == [
        ({}, 3),
        ({"topic": "a"}, 1),
        ({"topic": "b"}, 2),
    ]


@given(st.text(), st.text())
def test_any_label_value_and_help_come_through(value: str, help_text: str) -> None:
    family = Family("ottla_x", MetricKind.GAUGE, help_text, ("a", "b"), [((value, "b"), 1)])

    found = parsed(text_of(family))["ottla_x"]

    assert found.samples[0].labels == {"a": value, "b": "b"}


@given(st.integers() | st.floats() | st.booleans())
def test_any_number_comes_through(value: float) -> None:
    parsed_value = parsed(text_of(gauge([((), value)])))["ottla_x"].samples[0].value

    # A large integer may be printed with all its digits: more than a float has.
    assert parsed_value in (value, float(value)) or (
        parsed_value != parsed_value and value != value
    )


def test_numbers_are_written_shortly() -> None:
    assert [number(value) for value in (3, 3.0, 0.25, inf, -inf, nan, True)] == [
        "3",
        "3",
        "0.25",
        "+Inf",
        "-Inf",
        "NaN",
        "1",
    ]


def test_a_summary_has_quantiles_sum_and_count() -> None:
    value = Summary(7, 3.5, ((0.5, 0.25), (0.999, 2.0)))
    family = Family("ottla_ms", MetricKind.SUMMARY, "Times.", ("request",), [(("Fetch",), value)])

    assert text_of(family).splitlines()[2:] == [
        'ottla_ms{request="Fetch",quantile="0.50"} 0.25',
        'ottla_ms{request="Fetch",quantile="0.999"} 2',
        'ottla_ms_sum{request="Fetch"} 3.5',
        'ottla_ms_count{request="Fetch"} 7',
    ]


def test_a_histogram_has_rising_buckets_up_to_infinity() -> None:
    histogram = Histogram((10, 20))
    for at in (5, 15, 15, 99):
        histogram.observe(at)
    family = Family("ottla_s", MetricKind.HISTOGRAM, "Times.", (), [((), histogram.buckets())])

    text = text_of(family)

    assert text.splitlines()[2:] == [
        'ottla_s_bucket{le="10"} 1',
        'ottla_s_bucket{le="20"} 3',
        'ottla_s_bucket{le="+Inf"} 4',
        "ottla_s_sum 134",
        "ottla_s_count 4",
    ]
    assert parsed(text)["ottla_s"].type == "histogram"


def test_a_family_without_samples_is_left_out() -> None:
    assert text_of(gauge([]), gauge([None])) == ""


def test_a_pause_asked_for_in_a_family_comes_at_once() -> None:
    pieces = list(render([None, gauge([((), 1), None, ((), 2), None, None])]))

    assert pieces[0] == b""
    assert pieces[1].endswith(b"ottla_x 1\n")
    assert pieces[2:] == [b"ottla_x 2\n", b""]


def test_a_large_family_comes_in_pieces_below_one_head() -> None:
    count = 10 * ROWS_PER_PIECE + 1
    pieces = list(render([gauge([((str(at),), at) for at in range(count)], "a")]))

    assert len(pieces) == 11
    assert max(piece.count(b"\n") for piece in pieces) == ROWS_PER_PIECE + 2
    assert b"".join(pieces).count(b"# TYPE") == 1
    assert len(parsed(b"".join(pieces).decode())["ottla_x"].samples) == count


def test_what_clients_pushed_comes_after_what_the_node_tells() -> None:
    series = [
        SeriesRow("client_sent_total", "counter", "", 'client_id="a"', 7),
        SeriesRow("client_sent_total", "counter", "", 'client_id="b"', 8),
        SeriesRow("client_ms", "histogram", "_bucket", 'client_id="a",le="+Inf"', 2),
    ]
    text = b"".join(render_all([gauge([((), 3)])], series)).decode()

    assert text.splitlines()[2:] == [
        "ottla_x 3",
        "# TYPE client_sent_total counter",
        'client_sent_total{client_id="a"} 7',
        'client_sent_total{client_id="b"} 8',
        "# TYPE client_ms histogram",
        'client_ms_bucket{client_id="a",le="+Inf"} 2',
    ]


def test_a_client_cannot_push_under_a_name_of_the_node() -> None:
    series = [
        SeriesRow("ottla_x", "gauge", "", 'client_id="evil"', at) for at in range(ROWS_PER_PIECE)
    ]

    text = b"".join(render_all([gauge([((), 3)])], series)).decode()

    assert "evil" not in text
    assert text.count("# TYPE") == 1
