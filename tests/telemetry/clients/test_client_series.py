"""Deltas are summed to Prometheus counters; each client has a share, removed with the client."""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.telemetry.clients.client_labels import LABEL_NAMES, ClientLabels
from ottla.telemetry.clients.client_series import (
    HISTOGRAM_SUFFIXES,
    NODE_PREFIXES,
    PUSHES_WITHOUT_SUM_MAX,
    ClientSeries,
    label_text,
    legal_name,
)
from ottla.telemetry.clients.otlp import HistogramValue, Point, PointKind
from ottla.telemetry.clients.outline import split_points

Build = Callable[..., Any]
SENT = "org.apache.kafka.producer.record.send.total"


def point(
    name: str,
    value: float | HistogramValue,
    kind: PointKind = PointKind.SUM,
    *,
    is_delta: bool = True,
    is_monotonic: bool = True,
    having: Mapping[str, str] | None = None,
) -> Point:
    pairs = tuple((having or {}).items())
    is_delta = is_delta and kind is not PointKind.GAUGE
    return Point(name, "", kind, is_delta, is_monotonic, pairs, 0, 1, value)


def apply(series: ClientSeries, labels: ClientLabels, points: Iterable[Point]) -> None:
    series.apply(labels, *split_points(points))


def text_of(series: ClientSeries) -> str:
    """Return what a scrape would bring."""
    lines, families = [], []
    for row in series.rows():
        if row.family not in families:
            families.append(row.family)
            lines.append(f"# TYPE {row.family} {row.kind}")
        assert row.family == families[-1], "the rows of a family come in a row"
        lines.append(f"{row.family}{row.suffix}{{{row.labels}}} {row.value}")
    return "\n".join([*lines, ""])


def values_of(series: ClientSeries) -> dict[tuple[str, str], float]:
    """Return the values that Prometheus's own parser reads, by name and client id.

    It adds a suffix to the name of every counter, which is removed here.
    """
    return {
        (sample.name.removesuffix("_total"), sample.labels["client_id"]): sample.value
        for family in text_string_to_metric_families(text_of(series))
        for sample in family.samples
    }


def test_deltas_add_up_and_what_is_cumulative_or_a_gauge_replaces(labels_of: Build) -> None:
    series = ClientSeries()
    for added, level in ((3, 0.5), (4, 0.25)):
        points = [
            point(SENT, added),
            point("total.from.start", added, is_delta=False),
            point("in.flight", added, is_monotonic=False),
            point("level", level, PointKind.GAUGE),
        ]
        apply(series, labels_of(), points)
    assert values_of(series) == {
        ("org_apache_kafka_producer_record_send", "app-1"): 7,
        ("total_from_start", "app-1"): 4,
        ("in_flight", "app-1"): 7,
        ("level", "app-1"): 0.25,
    }


def test_the_parser_of_prometheus_reads_names_kinds_and_all_labels(labels_of: Build) -> None:
    series = ClientSeries()
    labels = labels_of(client_id='a "quoted"\\ \n id')
    apply(series, labels, [point(SENT, 3, having={"topic": "t-1", "node.id": "2"})])
    (family,) = text_string_to_metric_families(text_of(series))
    (sample,) = family.samples
    assert family.type == "counter"
    assert sample.name == "org_apache_kafka_producer_record_send_total"
    assert sample.labels == {**dict(labels.pairs()), "topic": "t-1", "node_id": "2"}
    assert set(LABEL_NAMES) < set(sample.labels)


def test_histograms_add_up_and_their_buckets_are_cumulative(labels_of: Build) -> None:
    series = ClientSeries()
    for _ in range(2):
        value = HistogramValue(4, 6.5, (1.0, 2.5), (1, 1, 2))
        apply(series, labels_of(), [point("latency", value, PointKind.HISTOGRAM)])
    (family,) = text_string_to_metric_families(text_of(series))
    assert family.type == "histogram"
    assert [(sample.name, sample.labels.get("le"), sample.value) for sample in family.samples] == [
        ("latency_bucket", "1.0", 2),
        ("latency_bucket", "2.5", 4),
        ("latency_bucket", "+Inf", 8),
        ("latency_sum", None, 13),
        ("latency_count", None, 8),
    ]


def test_a_histogram_with_other_bounds_restarts(labels_of: Build) -> None:
    series = ClientSeries()
    for bounds in ((1.0,), (2.0,)):
        value = HistogramValue(3, 6.0, bounds, (1, 2))
        apply(series, labels_of(), [point("latency", value, PointKind.HISTOGRAM)])
    rows = list(series.rows())
    assert [row.value for row in rows] == [1, 3, 6.0, 3]


def test_clients_share_families_and_a_client_that_goes_takes_its_own(labels_of: Build) -> None:
    series = ClientSeries()
    for number in (1, 2):
        apply(series, labels_of(number), [point(SENT, number), point(f"only.of.{number}", 1)])
    assert series.counts() == {"clients": 2, "series": 4, "refused": 0}

    series.forget(labels_of(1).client_instance_id)
    series.forget(labels_of(1).client_instance_id)

    assert series.counts() == {"clients": 1, "series": 2, "refused": 0}
    assert values_of(series) == {
        ("org_apache_kafka_producer_record_send", "app-2"): 2,
        ("only_of_2", "app-2"): 1,
    }
    apply(series, labels_of(1), [point(SENT, 5)])
    assert values_of(series)[("org_apache_kafka_producer_record_send", "app-1")] == 5


def test_a_client_keeps_the_series_of_its_share_and_the_rest_is_counted(labels_of: Build) -> None:
    series = ClientSeries(per_client_max=2)
    for _ in range(2):
        apply(series, labels_of(1), [point(name, 1) for name in ("a", "b", "c")])
    apply(series, labels_of(2), [point("c", 1)])
    assert values_of(series) == {("a", "app-1"): 2, ("b", "app-1"): 2, ("c", "app-2"): 1}
    assert series.counts() == {"clients": 2, "series": 3, "refused": 2}


def test_all_clients_together_are_bounded_and_room_is_given_back(labels_of: Build) -> None:
    series = ClientSeries(series_max=2)
    for number in (1, 2, 3):
        apply(series, labels_of(number), [point("a", number)])
    assert values_of(series) == {("a", "app-1"): 1, ("a", "app-2"): 2}
    series.forget(labels_of(1).client_instance_id)
    apply(series, labels_of(3), [point("a", 3)])
    assert values_of(series) == {("a", "app-3"): 3, ("a", "app-2"): 2}


def test_refused_names_leave_nothing_behind(labels_of: Build) -> None:
    series = ClientSeries(per_client_max=0)
    for number in range(100):
        apply(series, labels_of(), [point(f"m{number}", 1, having={"attribute": str(number)})])
    assert list(series.rows()) == []
    assert not series._families
    assert not series._keys
    assert series.counts()["refused"] == 100


def test_a_gauge_that_a_push_leaves_out_is_gone(labels_of: Build) -> None:
    series = ClientSeries()
    for member in ("", "m-1", "m-2"):  # a member of a group has another id after each rejoin
        assigned = point("assigned", 3, PointKind.GAUGE, having={"member_id": member})
        apply(series, labels_of(1), [assigned, point("rejoins", 1)])
        apply(series, labels_of(2), [assigned])
    rows = [row.labels for row in series.rows() if row.family == "assigned"]
    assert [text.endswith('member_id="m-2"') for text in rows] == [True, True]
    assert values_of(series)[("rejoins", "app-1")] == 3
    assert series.counts() == {"clients": 2, "series": 3, "refused": 0}


def test_a_sum_goes_when_some_pushes_left_it_out(labels_of: Build) -> None:
    series = ClientSeries()
    apply(series, labels_of(), [point("sum", 5)])
    for _ in range(4):
        apply(series, labels_of(), [point("other", 1)])
    apply(series, labels_of(), [point("sum", 2)])
    assert values_of(series)[("sum", "app-1")] == 7, "it stood still meanwhile"
    for _ in range(5):
        apply(series, labels_of(), [point("other", 1)])
    assert set(values_of(series)) == {("other", "app-1")}
    assert series.counts()["series"] == 1


def test_what_is_left_out_makes_room(labels_of: Build) -> None:
    series = ClientSeries(per_client_max=1)
    for name in ("a", "b", "b"):
        apply(series, labels_of(), [point(name, 1, PointKind.GAUGE)])
    assert set(values_of(series)) == {("b", "app-1")}
    assert series.counts()["refused"] == 1


def test_pushes_that_are_like_the_last_one_come_to_the_same_as_others(labels_of: Build) -> None:
    """The short way is held against the long one, by clients that never have the same twice."""
    alike, unlike = ClientSeries(), ClientSeries()
    value = HistogramValue(1, 2.0, (1.0,), (0, 1))
    for number in range(1, 6):
        points = [
            point(SENT, number),
            point("level", number / 2, PointKind.GAUGE),
            point("total.from.start", number, is_delta=False),
            point("latency", value, PointKind.HISTOGRAM),
        ]
        apply(alike, labels_of(), points)
        apply(unlike, labels_of(), points[number % 4 :] + points[: number % 4])
    assert values_of(alike) == values_of(unlike)
    assert values_of(alike)["org_apache_kafka_producer_record_send", "app-1"] == 15
    assert values_of(alike)["latency_count", "app-1"] == 5


def test_a_sum_left_out_after_pushes_that_were_alike_is_kept_for_as_long(labels_of: Build) -> None:
    series = ClientSeries()
    for _ in range(10):
        apply(series, labels_of(), [point("grows", 2), point("stands", 1)])
    for _ in range(PUSHES_WITHOUT_SUM_MAX):
        apply(series, labels_of(), [point("grows", 2)])
    assert {row.family: row.value for row in series.rows()} == {"grows": 28, "stands": 10}
    apply(series, labels_of(), [point("grows", 2)])
    assert {row.family: row.value for row in series.rows()} == {"grows": 30}


def test_a_series_that_comes_twice_in_a_push_is_one(labels_of: Build) -> None:
    series = ClientSeries()
    for _ in range(2):
        twice = [point(SENT, 1), point("level", 1, PointKind.GAUGE), point(SENT, 2)]
        apply(series, labels_of(), [*twice, point("level", 2, PointKind.GAUGE)])
    assert [row.value for row in series.rows()] == [6, 2]
    assert series.counts()["series"] == 2


def test_what_found_no_room_is_taken_when_there_is_some(labels_of: Build) -> None:
    series = ClientSeries(series_max=2)
    apply(series, labels_of(1), [point("a", 1)])
    for _ in range(2):
        apply(series, labels_of(2), [point("a", 1), point("b", 1)])
    assert series.counts()["refused"] == 2
    series.forget(labels_of(1).client_instance_id)
    apply(series, labels_of(2), [point("a", 1), point("b", 1)])
    assert {row.family: row.value for row in series.rows()} == {"a": 3, "b": 1}


def test_one_name_has_one_kind(labels_of: Build) -> None:
    series = ClientSeries()
    apply(series, labels_of(1), [point("a.b", 1)])
    apply(series, labels_of(2), [point("a-b", 1.5, PointKind.GAUGE), point("a-b", 2)])
    assert {(row.kind, row.value) for row in series.rows()} == {("counter", 1), ("counter", 2)}
    assert series.counts()["refused"] == 1


def test_attributes_in_another_order_are_the_same_series(labels_of: Build) -> None:
    series = ClientSeries()
    apply(
        series,
        labels_of(),
        [point("a", 1, having={"x": "1", "y": "2"}), point("a", 1, having={"y": "2", "x": "1"})],
    )
    (row,) = series.rows()
    assert row.value == 2


def test_ways_to_write_one_series_are_bounded(labels_of: Build) -> None:
    series = ClientSeries()
    for number in range(1_000):
        name = f"a{'.' if number % 2 else '-'}b"
        apply(series, labels_of(), [point(name, 1, having={f"x{'.' * (number % 50)}y": "1"})])
    assert len(series._keys) <= 8 * len(list(series.rows()))


def test_attributes_cannot_stand_for_our_labels_or_be_too_long(labels_of: Build) -> None:
    series = ClientSeries()
    apply(
        series,
        labels_of(),
        [
            point("a", 1, having={"client_id": "forged", "le": "1", "__name__": "forged"}),
            point("b", 1, having={"note": "x" * 3_000}),
        ],
    )
    (row,) = series.rows()
    assert row.labels == label_text([*labels_of().pairs(), ("attribute__name__", "forged")])
    assert series.counts()["refused"] == 1


def test_what_no_label_shows_takes_no_memory_either(labels_of: Build) -> None:
    series = ClientSeries()
    apply(
        series,
        labels_of(),
        [
            point("a", 1, having={"client_id": "x" * 3_000}),  # is not on the row, but in the key
            point("a" * 256, 1),
        ],
    )
    assert series.counts() == {"clients": 1, "series": 0, "refused": 2}
    assert not series._keys


def test_rows_may_be_read_in_slices_while_clients_come_and_go(labels_of: Build) -> None:
    series = ClientSeries()
    for number in range(10):
        apply(series, labels_of(number), [point("a", 1), point(f"b{number}", 1)])
    seen = []
    for number, row in enumerate(series.rows()):
        seen.append(row)
        if number < 10:
            series.forget(labels_of(number).client_instance_id)
            apply(series, labels_of(number + 100), [point("a", 1), point(f"c{number}", 1)])
    assert len([row for row in seen if row.family == "a"]) == 10


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        (SENT, "org_apache_kafka_producer_record_send_total"),
        ("9lives-é", "_9lives__"),
        ("", "_"),
        ("a:b_c", "a:b_c"),
    ],
)
def test_names_are_made_legal(name: str, legal: str) -> None:
    assert legal_name(name) == legal


def test_the_text_of_labels_escapes_what_prometheus_escapes() -> None:
    pairs: Iterable[tuple[str, str]] = [("a", 'x"y'), ("b", "x\\y"), ("c", "x\ny")]
    assert label_text(pairs) == r'a="x\"y",b="x\\y",c="x\ny"'


PAGE = Path(__file__).parents[3] / "docs/reference/metrics.md"
OUR_FAMILIES = re.findall(r"^\| `([a-z0-9_:]+)`", PAGE.read_text(), re.MULTILINE)
"""Every family of a node: a test compares the page with the registry of a broker at work."""

OUR_SAMPLES = {name + suffix for name in OUR_FAMILIES for suffix in ("", *HISTOGRAM_SUFFIXES)}

HISTOGRAM = HistogramValue(1, 1.0, (1.0,), (1, 0))


@pytest.mark.parametrize("kind", PointKind)
def test_a_client_takes_no_name_of_a_nodes_family(labels_of: Build, kind: PointKind) -> None:
    assert len(OUR_FAMILIES) > 100
    assert [name for name in OUR_FAMILIES if not name.startswith(NODE_PREFIXES)] == []
    series = ClientSeries(per_client_max=100_000)
    value = HISTOGRAM if kind is PointKind.HISTOGRAM else 1
    for family in OUR_FAMILIES:
        for end in ("", "_count", "_sum", "_bucket", "_total", "_created", ".count", "-sum"):
            for name in (
                family + end,
                family.replace("_", ".") + end,
                family.replace("_", "-") + end,
            ):
                apply(series, labels_of(1), [point(name, value, kind)])
    assert {row.family + row.suffix for row in series.rows()} & OUR_SAMPLES == set()
    assert series.counts()["refused"] > len(OUR_FAMILIES)


KINDS = {"gauge": PointKind.GAUGE, "sum": PointKind.SUM, "histogram": PointKind.HISTOGRAM}


@pytest.mark.parametrize("suffix", HISTOGRAM_SUFFIXES)
@pytest.mark.parametrize("other", ["gauge", "sum"])
@pytest.mark.parametrize("is_histogram_first", [True, False])
def test_no_two_families_of_clients_share_a_sample_name(
    labels_of: Build, suffix: str, other: str, is_histogram_first: bool
) -> None:
    series = ClientSeries()
    pushes = [
        (1, point("app.latency", HISTOGRAM, PointKind.HISTOGRAM)),
        (2, point(f"app.latency{suffix}", 1, KINDS[other])),
    ]
    if not is_histogram_first:
        pushes.reverse()
    for number, pushed in pushes:
        apply(series, labels_of(number), [pushed])
    (first, _), (second, later) = pushes
    assert {row.labels.partition(",")[0] for row in series.rows()} == {
        label_text(labels_of(first).pairs()).partition(",")[0]
    }
    assert series.counts()["refused"] == 1
    # With the first family its names are free again.
    series.forget(labels_of(first).client_instance_id)
    apply(series, labels_of(second), [later])
    assert {row.family for row in series.rows()} == {legal_name(later.name)}
