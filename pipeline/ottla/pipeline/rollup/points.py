"""Records of `__client_metrics` as Arrow: the client, the time, and every point of a push.  Pure.

Each record becomes one struct, so a column of record values becomes a column of pushes of the same
length.  A malformed record becomes a push without points; its field `problem` has the reason.

`push_id` is the same for every copy of a push, on any broker, so that retries of clients and
brokers count once.  If the points of a push have no time, the time at which the push was received
identifies it.  NaN and infinite values are skipped.
"""

import json
import math
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from itertools import repeat
from typing import Any

import pyarrow as pa

from ottla.model.errors import CorruptDataError
from ottla.telemetry.clients.client_labels import LABEL_NAMES, ClientLabels
from ottla.telemetry.clients.client_record import decode_record
from ottla.telemetry.clients.otlp import Attributes, HistogramValue, Point, PointKind

GAUGE, SUM, HISTOGRAM = "gauge", "sum", "histogram"
INT64_MAX = (1 << 63) - 1
PUSH_ID_BYTES = 16
ATTRIBUTES_REMEMBERED = 20_000
"""Number of sets of metric attributes whose JSON text is cached, at some hundred bytes each."""

POINT_TYPE = pa.struct(
    [
        ("metric", pa.string()),
        ("unit", pa.string()),
        ("kind", pa.string()),
        ("is_cumulative", pa.bool_()),
        ("attributes", pa.string()),
        ("ordinal", pa.int32()),
        ("start_ns", pa.int64()),
        ("end_ns", pa.int64()),
        ("value", pa.float64()),
        ("count", pa.int64()),
        ("sum", pa.float64()),
        ("bounds", pa.list_(pa.float64())),
        ("counts", pa.list_(pa.int64())),
    ]
)
"""Arrow type of a metric point. `attributes` is JSON with sorted names; `ordinal` distinguishes
several points of one series in one push. Gauges and sums have a `value`; histograms have the last
four fields. A cumulative sum that may decrease is stored as a gauge."""
LABEL_TYPES = [pa.int32() if name == "broker_id" else pa.string() for name in LABEL_NAMES]


def pushes(values: Iterable[bytes | None]) -> pa.StructArray:
    """Return one push (a client's report of metrics) for each record value: client, time, and an
    array of `POINT_TYPE` or a problem."""
    labels: list[ClientLabels | None] = []
    push_ids: list[str | None] = []
    received: list[int | None] = []
    problems: list[str | None] = []
    starts = [0]
    rows: list[tuple[Any, ...]] = []
    for value in values:
        try:
            who, received_ms, points = decode_record(value or b"")
        except CorruptDataError as error:
            labels.append(None)
            push_ids.append(None)
            received.append(None)
            problems.append(str(error))
        else:
            labels.append(who)
            push_ids.append(push_id(who, received_ms, points))
            received.append(received_ms)
            problems.append(None)
            rows.extend(point_rows(points))
        starts.append(len(rows))
    columns = zip(*rows, strict=True) if rows else repeat((), len(POINT_TYPE))
    fields = [
        pa.array(column, field.type) for column, field in zip(columns, POINT_TYPE, strict=True)
    ]
    flat = pa.StructArray.from_arrays(fields, fields=list(POINT_TYPE))
    whos = [None if who is None else _label_values(who) for who in labels]
    named = {
        "push_id": pa.array(push_ids, pa.string()),
        **{
            name: pa.array([who and who[index] for who in whos], LABEL_TYPES[index])
            for index, name in enumerate(LABEL_NAMES)
        },
        "received_ms": pa.array(received, pa.int64()),
        "points": pa.ListArray.from_arrays(pa.array(starts, pa.int32()), flat),
        "problem": pa.array(problems, pa.string()),
    }
    return pa.StructArray.from_arrays(list(named.values()), names=list(named))


def push_id(who: ClientLabels, received_ms: int, points: list[Point]) -> str:
    """Return the id that all copies of a push (a client's report of metrics) have in common, as 32
    hex digits.

    The client instance id is the only label that is part of it, because a copy may have another
    source address or broker.
    """
    says_time = any(point.end_ns for point in points)
    id_source = repr((who.client_instance_id.bytes, 0 if says_time else received_ms, points))
    return blake2b(id_source.encode(), digest_size=PUSH_ID_BYTES).hexdigest()


def point_rows(points: Iterable[Point]) -> list[tuple[Any, ...]]:
    """Return the metric points of a push (a client's report of metrics) as rows of `POINT_TYPE`."""
    rows: list[tuple[Any, ...]] = []
    seen: dict[tuple[str, str, str], int] = {}
    for point in points:
        value = point.value
        attributes = attributes_text(point.attributes)
        if isinstance(value, HistogramValue):
            if not all(map(math.isfinite, (value.sum, *value.bounds))):
                continue
            kind, is_cumulative = HISTOGRAM, not point.is_delta
            counts = [min(count, INT64_MAX) for count in value.counts]
            tail: tuple[Any, ...] = (
                None,
                min(value.count, INT64_MAX),
                value.sum,
                list(value.bounds),
                counts,
            )
        elif math.isfinite(value):
            is_sum = point.kind is PointKind.SUM and (point.is_delta or point.is_monotonic)
            kind, is_cumulative = (SUM, not point.is_delta) if is_sum else (GAUGE, False)
            tail = (float(value), None, None, None, None)
        else:
            continue
        series = (point.name, kind, attributes)
        ordinal = seen[series] = seen.get(series, -1) + 1
        times = min(point.start_ns, INT64_MAX), min(point.end_ns, INT64_MAX)
        head = (point.name, point.unit, kind, is_cumulative, attributes, ordinal)
        rows.append((*head, *times, *tail))
    return rows


@lru_cache(maxsize=ATTRIBUTES_REMEMBERED)
def attributes_text(attributes: Attributes) -> str:
    """Return metric attributes as JSON. The text is the same for the same attributes in any order.
    If a name is repeated, its last value counts."""
    return json.dumps(dict(sorted(dict(attributes).items())), ensure_ascii=False)


def _label_values(who: ClientLabels) -> tuple[str | int, ...]:
    texts = [text for _, text in who.pairs()]
    return (*texts[:-1], who.broker_id)
