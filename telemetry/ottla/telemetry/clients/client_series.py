"""Series of clients' metrics for Prometheus: cumulative, limited in number, and deleted with their
client.

Pure; used only in the event loop. Clients push deltas, as KIP-714 requires, but Prometheus needs
cumulative sums. This module therefore stores one sum for each series. A series consists of a name,
a client and the attributes of the point. If a client exceeds its maximum number of series, or all
clients exceed the total, the existing series are kept. Additional series are counted and dropped.
Each push lists all series of a client. A gauge that a push omits is deleted at once: the id of a
group member, for example, is different after each rejoin. A sum is deleted several pushes later,
because a client may omit sums that did not grow.

The values of a client are stored as one list, in the order of its push. Nearly every push has the
same series as the previous push, and then simply replaces that list.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple
from uuid import UUID

from ottla.telemetry.clients.client_labels import LABEL_NAMES, ClientLabels
from ottla.telemetry.clients.otlp import Attributes, HistogramValue
from ottla.telemetry.clients.outline import Outline, Series, Value

SERIES_PER_CLIENT_MAX = 2_000
"""Maximum number of metric series of one client.

A Java client with every metric on about a hundred partitions has about this many series. With a
lower limit, series of such a client are dropped. With a higher limit, one client can use up more of
the total that all clients share.
"""
SERIES_MAX = 200_000
"""Maximum number of metric series of all clients together. Each series takes a few hundred bytes of
memory, and about twice as many in every scrape."""
ATTRIBUTES_LENGTH_MAX = 2_048
"""Maximum length of the attributes of one series, in characters, both as received and as text.
Series with longer attributes are refused."""
NAME_LENGTH_MAX = 255
"""Maximum length of the name of a client's metric, in characters: the limit of OpenTelemetry for
instruments."""

ALIASES_MAX = 8
"""Maximum number of stored variants of a series' attributes: the same attributes in another order,
or with names that are equal in Prometheus. Further variants are refused."""

PUSHES_WITHOUT_SUM_MAX = 4
"""Number of pushes in which a client may omit a sum (a cumulative metric) before the sum is
deleted.

With a lower number, a sum that does not grow is deleted too early and starts again from zero. With
a higher number, unused series are kept longer.
"""

NODE_PREFIXES = ("kafka_", "ottla_", "process_", "python_")
"""Prefixes of the names of all metrics of a node.

A client's metric with such a prefix is refused, because readers could mistake it for a metric of
the node. For example, a client's gauge `X_count` could be mistaken for part of the node's summary
`X`. Standard metrics of clients have the prefix `org_apache_kafka_` (KIP-714).
"""

HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")

_Alias = tuple[str, Attributes]
"""Name and attributes of a metric series as a client sent them."""


class SeriesRow(NamedTuple):
    """One line of Prometheus text for a client's metric: `family` + `suffix` + `{labels}` and the
    value."""

    family: str
    kind: str
    """Kind of the row's metric: counter, gauge or histogram. All rows of a family have the same
    kind and are adjacent."""
    suffix: str
    """Suffix of the metric name in a histogram's row: _bucket, _sum or _count. Empty for other
    kinds."""
    labels: str
    """Labels of the row as escaped text, without the surrounding braces."""
    value: int | float


class _Client:
    """One client that has metric series: its labels as text, and the series' values."""

    __slots__ = ("added", "keys", "outline", "pushes", "text", "values")

    def __init__(self, labels: ClientLabels) -> None:
        self.text = label_text(labels.pairs())
        self.pushes = 0
        self.keys: dict[_Key, int] = {}
        """Sets of attributes (`_Key`) of the client's series. The value is the sequence number
        of the last push with this set; it is not updated while successive pushes have the same
        series."""
        self.values: list[Value] = []
        self.outline: Outline | None = None
        """Series (outline) of the client's last push, if its values can be replaced as a whole.
        None if some series were refused or occurred twice, or if sums of earlier pushes are still
        kept."""
        self.added: tuple[int, ...] = ()
        """Positions of the increases in the client's last push. These values are added to the
        previous values."""


class _Key:
    """One set of attributes in a metric family, and the clients that have reported a value for
    it."""

    __slots__ = ("aliases", "family", "places", "text")

    def __init__(self, family: "_Family", text: str) -> None:
        self.family = family
        self.text = text
        self.aliases: list[_Alias] = []
        self.places: dict[_Client, int] = {}
        """Position of the series with these attributes among the values of a client, by client."""


class _Family:
    """One metric family of clients: all series with the same metric name in Prometheus's form."""

    __slots__ = ("keys", "kind", "name")

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.keys: dict[str, _Key] = {}
        """Sets of attributes in this metric family, by their text in Prometheus's form."""


class ClientSeries:
    """The metric series of all clients, with their current values."""

    def __init__(
        self, *, per_client_max: int = SERIES_PER_CLIENT_MAX, series_max: int = SERIES_MAX
    ) -> None:
        self._per_client_max = per_client_max
        self._series_max = series_max
        self._clients: dict[UUID, _Client] = {}
        self._families: dict[str, _Family] = {}
        self._sample_names: set[str] = set()
        """Sample names of all metric families, including the suffixes of histograms. Each name
        belongs to only one family."""
        self._keys: dict[_Alias, _Key] = {}
        self._count = 0
        self._refused = 0

    def apply(self, labels: ClientLabels, outline: Outline, values: list[Value]) -> None:
        """Update a client's series with the values of a push. `outline` contains the series of the
        push. The caller must not use the list `values` afterwards."""
        client = self._clients.get(labels.client_instance_id)
        if client is None:
            client = self._clients[labels.client_instance_id] = _Client(labels)
        client.pushes += 1
        if client.outline is not outline and client.outline != outline:
            self._replace_series(client, outline, values)
            return
        before = client.values
        for place in client.added:
            values[place] = _sum_of(before[place], values[place])
        client.values = values

    def _replace_series(self, client: _Client, outline: Outline, values: Sequence[Value]) -> None:
        """Update a client's series after a push whose series differ from the client's previous
        push."""
        if client.outline is not None:
            client.keys = dict.fromkeys(client.keys, client.pushes - 1)
        taken: list[Value] = []
        places: dict[_Key, int] = {}
        for series, value in zip(outline, values, strict=True):
            key = self._keys.get((series.name, series.attributes))
            if key is None or key.family.kind != series.kind:
                key = self._new_key(series)
            if key is not None and key in places:  # the series occurs twice in the push
                place = places[key]
                taken[place] = _sum_of(taken[place], value) if series.is_delta else value
                continue
            before = key.places.get(client) if key is not None else None
            if key is None or (before is None and not self._has_room(client, key)):
                self._refused += 1
                continue
            client.keys[key] = client.pushes
            places[key] = len(taken)
            if before is not None and series.is_delta:
                value = _sum_of(client.values[before], value)
            taken.append(value)
        is_all = len(taken) == len(outline)
        for key in self._left_out_but_kept(client):
            is_all = False
            places[key] = len(taken)
            taken.append(client.values[key.places[client]])
        for key, place in places.items():
            key.places[client] = place
        client.values = taken
        client.outline = outline if is_all else None
        client.added = tuple(place for place, series in enumerate(outline) if series.is_delta)

    def forget(self, instance_id: UUID) -> None:
        """Delete all metric series of a client."""
        client = self._clients.pop(instance_id, None)
        if client is None:
            return
        for key in client.keys:
            self._drop_value(client, key)

    def rows(self) -> Iterator[SeriesRow]:
        """Yield the current values of all clients' series as lines of Prometheus text, family by
        family. The lines may or may not include changes during the iteration."""
        for family in list(self._families.values()):
            for key in list(family.keys.values()):
                for client in list(key.places):
                    place = key.places.get(client)
                    if place is None:  # the series was deleted meanwhile
                        continue
                    value = client.values[place]
                    labels = f"{client.text},{key.text}" if key.text else client.text
                    if isinstance(value, HistogramValue):
                        yield from _histogram_rows(family.name, labels, value)
                    else:
                        yield SeriesRow(family.name, family.kind, "", labels, value)

    def counts(self) -> Mapping[str, int]:
        """Return the number of clients and of their series, and the number of data points dropped
        because a limit was reached."""
        return {"clients": len(self._clients), "series": self._count, "refused": self._refused}

    def _has_room(self, client: _Client, key: _Key) -> bool:
        """Count another series of a client and return True if the limits permit the series.
        Otherwise return False, and delete `key` (the series' set of attributes) if no client uses
        it."""
        if len(client.keys) >= self._per_client_max or self._count >= self._series_max:
            if not key.places:
                self._drop(key)
            return False
        self._count += 1
        return True

    def _left_out_but_kept(self, client: _Client) -> list[_Key]:
        """Delete the series that the client's last push omits, except for recently omitted sums.
        Returns the sets of attributes of these sums."""
        left_out = [(key, last) for key, last in client.keys.items() if last < client.pushes]
        kept = []
        for key, last in left_out:
            is_gauge = key.family.kind == "gauge"
            if is_gauge or client.pushes - last > PUSHES_WITHOUT_SUM_MAX:
                del client.keys[key]
                self._drop_value(client, key)
            else:
                kept.append(key)
        return kept

    def _drop_value(self, client: _Client, key: _Key) -> None:
        self._count -= 1
        del key.places[client]
        if not key.places:
            self._drop(key)

    def _new_key(self, series: Series) -> _Key | None:
        """Return the set of attributes (`_Key`) to which a new series belongs. Returns None if the
        series is refused because of its names, its length or its kind."""
        if (
            len(series.name) > NAME_LENGTH_MAX
            or sum(len(name) + len(value) for name, value in series.attributes)
            > ATTRIBUTES_LENGTH_MAX
        ):
            return None
        name, kind = legal_name(series.name), series.kind
        text = label_text(_legal_attributes(series.attributes))
        family = self._families.get(name)
        if len(text) > ATTRIBUTES_LENGTH_MAX or (family is not None and family.kind != kind):
            return None
        if family is None:
            names = sample_names(name, kind)
            if name.startswith(NODE_PREFIXES) or not self._sample_names.isdisjoint(names):
                return None
            self._sample_names.update(names)
            family = self._families[name] = _Family(name, kind)
        key = family.keys.get(text)
        if key is None:
            key = family.keys[text] = _Key(family, text)
        if len(key.aliases) >= ALIASES_MAX:
            return None
        alias = (series.name, series.attributes)
        self._keys[alias] = key
        key.aliases.append(alias)
        return key

    def _drop(self, key: _Key) -> None:
        for alias in key.aliases:
            del self._keys[alias]
        del key.family.keys[key.text]
        if not key.family.keys:
            del self._families[key.family.name]
            self._sample_names.difference_update(sample_names(key.family.name, key.family.kind))


def sample_names(name: str, kind: str) -> tuple[str, ...]:
    """Return the sample names of a metric family in Prometheus text. A histogram has three names in
    addition to the name of the family."""
    suffixes = HISTOGRAM_SUFFIXES if kind == "histogram" else ()
    return (name, *(name + suffix for suffix in suffixes))


def legal_name(name: str) -> str:
    """Return the name of a client's metric in Prometheus's form: dots and dashes are replaced by
    underscores."""
    legal = _NOT_IN_NAMES.sub("_", name)
    return legal if legal and not legal[0].isdigit() else f"_{legal}"


def label_text(pairs: Iterable[tuple[str, str]]) -> str:
    """Return labels as text between the braces of a row in Prometheus text. `pairs` contains (name,
    value) of each label."""
    return ",".join([f'{name}="{_escaped(value)}"' for name, value in pairs])


_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_:]")
_NOT_IN_LABELS = re.compile(r"[^a-zA-Z0-9_]")
_RESERVED_LABELS = frozenset((*LABEL_NAMES, "le"))


def _legal_attributes(attributes: Attributes) -> Iterator[tuple[str, str]]:
    """Yield the attributes of a series with their names in Prometheus's form.

    If several attributes have the same name, only the last is used. Attributes with a name in
    `LABEL_NAMES` are dropped.
    """
    by_name = {}
    for name, value in attributes:
        legal = _NOT_IN_LABELS.sub("_", name)
        if not legal or legal[0].isdigit():
            legal = f"_{legal}"
        if legal.startswith("__"):  # names with two leading underscores are reserved for Prometheus
            legal = f"attribute{legal}"
        by_name[legal] = value
    yield from ((name, by_name[name]) for name in sorted(by_name) if name not in _RESERVED_LABELS)


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return value


def _sum_of(before: Value, added: Value) -> Value:
    """Return the sum of two values of one series, both numbers or both histograms. If the bounds of
    the histograms differ, returns `added`."""
    if not isinstance(before, HistogramValue) or not isinstance(added, HistogramValue):
        assert not isinstance(before, HistogramValue)
        assert not isinstance(added, HistogramValue)
        return before + added
    if before.bounds != added.bounds:
        return added
    return HistogramValue(
        before.count + added.count,
        before.sum + added.sum,
        before.bounds,
        tuple(map(int.__add__, before.counts, added.counts)),
    )


def _histogram_rows(family: str, labels: str, value: HistogramValue) -> Iterator[SeriesRow]:
    within = list(accumulate(value.counts))
    for bound, count in zip(value.bounds, within[:-1], strict=True):
        yield SeriesRow(family, "histogram", "_bucket", f'{labels},le="{bound!r}"', count)
    yield SeriesRow(family, "histogram", "_bucket", f'{labels},le="+Inf"', value.count)
    yield SeriesRow(family, "histogram", "_sum", labels, value.sum)
    yield SeriesRow(family, "histogram", "_count", labels, value.count)
