"""Fuzz target: telemetry pushes of clients, which are decompressed, decoded and labelled, then
converted to a record and to time series.

An input is its codec and the payload. Each step may raise the errors allowed for it. In addition,
three conditions must hold: labels change no point, the topic's record equals the push, and no
scrape has the same series twice.
"""

from collections import Counter
from collections.abc import Iterator
from random import Random
from uuid import UUID

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from ottla.jepsen.fuzz.target import FuzzTarget
from ottla.model.errors import CorruptDataError, RefusedError
from ottla.model.limits import KIB, MIB
from ottla.telemetry.clients.client_labels import ClientLabels
from ottla.telemetry.clients.client_record import decode_record, encode_records
from ottla.telemetry.clients.client_series import ClientSeries
from ottla.telemetry.clients.exporter import LabelledPush
from ottla.telemetry.clients.otlp import Point, decode, label, points_of
from ottla.telemetry.clients.outline import split_points
from ottla.telemetry.clients.unpack import unpack
from ottla.wire.compression import Codec, compress

LIMIT_BYTES = 64 * KIB
"""Maximum size in bytes of an uncompressed telemetry push. It is small, so that inputs often exceed
it."""
PER_CLIENT_MAX = 20
LABELS = ClientLabels(UUID(int=7), "c", "User:ANONYMOUS", "s", "1", "127.0.0.1", 1)
NUMBERS = (0.0, -1.5, float("inf"), float("nan"), 1e300)


def _check(data: bytes) -> None:
    codec = data[0] & 7 if data else 0
    metrics = decode(unpack(data[1:], codec, bytes_max=LIMIT_BYTES))
    points = list(points_of(metrics))
    push = LabelledPush(LABELS, 1, label(metrics, LABELS))
    assert _bag(points_of(decode(push.otlp))) == _bag(points), "labels change no point"
    (record,), left_out = encode_records(push)
    assert left_out == 0
    labels, _, recorded = decode_record(record)
    assert labels == LABELS
    assert _bag(recorded) == _bag(points), "the record says what was pushed"
    series = ClientSeries(per_client_max=PER_CLIENT_MAX)
    for _ in range(2):
        series.apply(LABELS, *split_points(points))
    lines = [(row.family, row.suffix, row.labels) for row in series.rows()]
    assert len(set(lines)) == len(lines), "no series twice"
    assert series.counts()["series"] <= PER_CLIENT_MAX
    series.forget(LABELS.client_instance_id)
    assert not list(series.rows())


def _bag(points: Iterator[Point] | list[Point]) -> Counter[str]:
    # As texts, since NaN differs from itself.
    return Counter(map(repr, points))


def _pushes(random: Random) -> Iterator[bytes]:
    """Yield telemetry pushes with every kind of metric, in a single resource and in several
    resources."""
    for resource_count in (1, 3):
        data = MetricsData()
        for number in range(resource_count):
            part = data.resource_metrics.add()
            part.resource.attributes.add(key="group_id").value.string_value = "g" * (number % 2)
            for index, value in enumerate(NUMBERS):
                metric = part.scope_metrics.add().metrics.add(name=f"a.b-{index % 3}", unit="ms")
                if index % 3 == 0:
                    point = metric.gauge.data_points.add(as_double=value)
                elif index % 3 == 1:
                    metric.sum.is_monotonic = bool(index % 2)
                    metric.sum.aggregation_temporality = 1 + index % 2  # type: ignore[assignment]
                    point = metric.sum.data_points.add(as_int=random.randrange(-9, 1 << 62))
                else:
                    spread = metric.histogram.data_points.add(
                        count=3, sum=value, explicit_bounds=[1, 2], bucket_counts=[1, 1, 1]
                    )
                    spread.attributes.add(key="x").value.bool_value = True
                    continue
                point.attributes.add(key="node.id").value.int_value = index
                point.attributes.add(key="le").value.string_value = 'a"\n\\'
        yield data.SerializeToString()


def _seeds(random: Random) -> Iterator[bytes]:
    for codec in Codec:
        for push in _pushes(random):
            yield bytes([codec]) + compress(codec, push)
        yield bytes([codec]) + compress(codec, bytes(LIMIT_BYTES + 1))


PUSHES = FuzzTarget(
    name="pushes",
    sentence="Telemetry pushes of clients: decompressed, decoded, labelled, exported.",
    check=_check,
    seeds=_seeds,
    refusals=(CorruptDataError, RefusedError),
    allocation_free_bytes=4 * MIB,  # unpacked data, and its series
)
