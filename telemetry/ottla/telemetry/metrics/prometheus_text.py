"""Rendering of a registry of metrics as Prometheus text (exposition format 0.0.4), in pieces
between which other tasks may run.

Pure. A piece consists of some rows of one family. The caller decides after how many pieces other
tasks run. Invariants:
- OneFamilyOnePlace: all rows of a name are adjacent, below its TYPE.
- EveryRowParses: every row is valid Prometheus text.
"""

from collections.abc import Collection, Iterable, Iterator
from math import inf, isnan

from ottla.telemetry.clients.client_series import SeriesRow
from ottla.telemetry.metrics.instruments import (
    Buckets,
    Family,
    Labels,
    MetricKind,
    Sample,
    Summary,
    Value,
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

REPLACED = "replace"
"""Error handler for encoding the Prometheus text. It writes `?` for characters that UTF-8 cannot
encode, so that one label cannot make a scrape fail."""

ROWS_PER_PIECE = 64
"""Number of rows in a piece of the Prometheus text. With a smaller number, each row costs more
time. With a larger number, each piece blocks the event loop for longer than the current 100 µs."""

_LABEL_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


def render_all(families: Iterable[Family | None], series: Iterable[SeriesRow]) -> Iterator[bytes]:
    """Yield the Prometheus text of the node's metrics, then of the metrics that clients have
    pushed.

    A client's metric with the same name as a metric of the node is left out, because it would
    invalidate the scrape.
    """
    taken: set[str] = set()

    def noted() -> Iterator[Family | None]:
        for family in families:
            if family is not None:
                taken.add(family.name)
            yield family

    yield from render(noted())
    yield from render_series(series, taken)


def render_series(series: Iterable[SeriesRow], taken: Collection[str] = ()) -> Iterator[bytes]:
    """Yield the Prometheus text of the series that clients have pushed, piece by piece. The rows of
    a family must be adjacent. Families with a name in `taken` are left out."""
    rows: list[str] = []
    name = ""
    for row in series:
        if row.family != name:
            name = row.family
            if name not in taken:
                rows.append(f"# TYPE {name} {row.kind}\n")
        if name not in taken:
            rows.append(f"{name}{row.suffix}{{{row.labels}}} {number(row.value)}\n")
        if len(rows) >= ROWS_PER_PIECE:
            yield "".join(rows).encode(errors=REPLACED)
            rows = []
    yield "".join(rows).encode(errors=REPLACED)


def render(families: Iterable[Family | None]) -> Iterator[bytes]:
    """Yield the Prometheus text of metric families in pieces. An empty piece means that other tasks
    may run.

    A family without samples is left out.
    """
    for family in families:
        if family is None:
            yield b""
        else:
            yield from _pieces(family)


def _pieces(family: Family) -> Iterator[bytes]:
    head = (
        f"# HELP {family.name} {family.help.translate(_HELP_ESCAPES)}\n"
        f"# TYPE {family.name} {family.kind.value}\n"
    )
    is_plain = family.kind in (MetricKind.COUNTER, MetricKind.GAUGE)
    rows: list[str] = []
    for row in _plain_rows(family) if is_plain else _rows_of_distributions(family):
        if row:
            rows.append(row)
            if len(rows) < ROWS_PER_PIECE:
                continue
        yield (head + "".join(rows)).encode(errors=REPLACED) if rows else b""
        if rows:
            head, rows = "", []
    if rows:
        yield (head + "".join(rows)).encode(errors=REPLACED)


def _plain_rows(family: Family) -> Iterator[str]:
    """Yield one row of Prometheus text per sample of a family of single numbers."""
    name = family.name
    pairs = ",".join(f'{label}="%s"' for label in family.label_names)
    template = f"{name}{{{pairs}}} %s\n"
    for sample in family.samples:
        if sample is None:
            yield ""
            continue
        labels, value = sample
        text = value if type(value) is int else number(value)
        if labels:
            joined = "".join(labels)
            if '"' in joined or "\\" in joined or "\n" in joined:
                labels = tuple(label.translate(_LABEL_ESCAPES) for label in labels)
            yield template % (*labels, text)
        else:
            yield f"{name} {text}\n"


def _rows_of_distributions(family: Family) -> Iterator[str]:
    for sample in family.samples:
        if sample is None:
            yield ""
        else:
            yield _distribution(family, sample)


def _distribution(family: Family, sample: Sample) -> str:
    """Return all rows of Prometheus text for one summary or histogram sample: its quantiles or
    buckets, its sum and its count."""
    labels, value = sample
    names = family.label_names[: len(labels)]
    plain = label_text(names, labels)
    rows = []
    if isinstance(value, Summary):
        for q, at in value.quantiles:
            marked = label_text((*names, "quantile"), (*labels, quantile_text(q)))
            rows.append(f"{family.name}{marked} {number(at)}\n")
        count = value.value_count
    else:
        assert isinstance(value, Buckets)
        count = 0
        for bound, bucket_count in zip((*value.bounds, inf), value.counts, strict=True):
            count += bucket_count
            marked = label_text((*names, "le"), (*labels, number(bound)))
            rows.append(f"{family.name}_bucket{marked} {count}\n")
    rows.append(f"{family.name}_sum{plain} {number(value.value_sum)}\n")
    rows.append(f"{family.name}_count{plain} {count}\n")
    return "".join(rows)


def label_text(names: Labels, values: Labels) -> str:
    """Return labels as Prometheus text `{name="value",…}`, or an empty text if there are no
    labels."""
    if not values:
        return ""
    pairs = (
        f'{name}="{value.translate(_LABEL_ESCAPES)}"'
        for name, value in zip(names, values, strict=True)
    )
    return f"{{{','.join(pairs)}}}"


def number(value: Value) -> str:
    """Return the value of a sample as Prometheus text."""
    if isinstance(value, int):
        return str(int(value))
    assert isinstance(value, float)
    if isnan(value):
        return "NaN"
    if value in (inf, -inf):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value) if value % 1 or abs(value) >= 1e15 else str(int(value))


def quantile_text(q: float) -> str:
    """Return a quantile as the rules of the JMX exporter write it: 0.50, 0.999."""
    return f"{q:.2f}" if round(q, 2) == q else f"{q:g}"
