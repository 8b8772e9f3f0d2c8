"""What clients pushed, as the series that Prometheus reads: cumulative, bounded, gone with them.

Pure; belongs to the loop.  Clients push what was added since the last push (KIP-714 asks for
deltas); Prometheus wants sums since a beginning, so the sums are kept here, one a series.  A
series is a name, a client and the point's attributes.  A client that pushes more series than its
share, or the one that comes when all are taken, keeps those it has; the rest is counted.  A push is
all that a client has: a gauge that it leaves out is gone (a member of a group has another id after
each rejoin), a sum some pushes later, should a client leave out what did not grow.

A client's values lie in one list, in the order of its push: a push that has the same series as the
last one, which is nearly every push, is a new list.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple
from uuid import UUID

from ottla.telemetry.client_labels import LABEL_NAMES, ClientLabels
from ottla.telemetry.otlp import Attributes, HistogramValue
from ottla.telemetry.outline import Outline, Series, Value

SERIES_PER_CLIENT_MAX = 2_000
"""Series of one client.  A Java client with every metric on some hundred partitions has that many;
lower cuts such a client short, higher lets one client take the share of others."""
SERIES_MAX = 200_000
"""Series of all clients: some hundred bytes each, and twice that in every scrape."""
ATTRIBUTES_LENGTH_MAX = 2_048
"""Characters of one series' attributes, as they came and as text; longer ones are refused."""
NAME_LENGTH_MAX = 255
"""Characters of a name: OpenTelemetry allows an instrument no longer."""

ALIASES_MAX = 8
"""Ways to send one set of attributes (in another order, under names that Prometheus writes alike)
that are remembered; more are refused."""

PUSHES_WITHOUT_SUM_MAX = 4
"""Pushes of a client that may leave a sum out before it is gone.  Lower makes sums begin again
that a client leaves out while they stand still, higher keeps what is no more for longer."""

NODE_PREFIXES = ("kafka_", "ottla_", "process_", "python_")
"""First parts of the names of all families of a node.  A client's metric that begins so is refused:
it would be read as the node's own, as a client's gauge `X_count` beside the node's summary `X` is.
Standard names of clients begin with `org_apache_kafka_` (KIP-714)."""

HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")

_Alias = tuple[str, Attributes]
"""A series as its clients name it."""


class SeriesRow(NamedTuple):
    """One line of Prometheus text: `family` + `suffix` + `{labels}` and the value."""

    family: str
    kind: str
    """counter, gauge or histogram, the same in a family; all rows of a family come in a row."""
    suffix: str
    """Empty, or of a histogram _bucket, _sum, _count."""
    labels: str
    """Ready text between the braces, escaped."""
    value: int | float


class _Client:
    """One client that has series: its labels as text, and its values."""

    __slots__ = ("added", "keys", "outline", "pushes", "text", "values")

    def __init__(self, labels: ClientLabels) -> None:
        self.text = label_text(labels.pairs())
        self.pushes = 0
        self.keys: dict[_Key, int] = {}
        """With the number of the push that had it last; not brought up to date while pushes have
        the same outline."""
        self.values: list[Value] = []
        self.outline: Outline | None = None
        """Of the last push, if it is all that the client has: a value for each of its series, in
        its order.  None where some were refused or came twice, or older sums are still there."""
        self.added: tuple[int, ...] = ()
        """The places in it of what is added to the value before."""


class _Key:
    """One set of attributes of a family, and who has a value of it."""

    __slots__ = ("aliases", "family", "places", "text")

    def __init__(self, family: "_Family", text: str) -> None:
        self.family = family
        self.text = text
        self.aliases: list[_Alias] = []
        self.places: dict[_Client, int] = {}
        """Where among its client's values each lies."""


class _Family:
    """One name as Prometheus writes it."""

    __slots__ = ("keys", "kind", "name")

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.keys: dict[str, _Key] = {}
        """By their attributes as text."""


class ClientSeries:
    """The values of all clients; owns them."""

    def __init__(
        self, *, per_client_max: int = SERIES_PER_CLIENT_MAX, series_max: int = SERIES_MAX
    ) -> None:
        self._per_client_max = per_client_max
        self._series_max = series_max
        self._clients: dict[UUID, _Client] = {}
        self._families: dict[str, _Family] = {}
        self._sample_names: set[str] = set()
        """Of all families, a histogram's with suffixes: no two families share one."""
        self._keys: dict[_Alias, _Key] = {}
        self._count = 0
        self._refused = 0

    def apply(self, labels: ClientLabels, outline: Outline, values: list[Value]) -> None:
        """Take in what a client pushed; `values` are the caller's no longer."""
        client = self._clients.get(labels.client_instance_id)
        if client is None:
            client = self._clients[labels.client_instance_id] = _Client(labels)
        client.pushes += 1
        if client.outline is not outline and client.outline != outline:
            self._take_anew(client, outline, values)
            return
        before = client.values
        for place in client.added:
            values[place] = _sum_of(before[place], values[place])
        client.values = values

    def _take_anew(self, client: _Client, outline: Outline, values: Sequence[Value]) -> None:
        """Take in a push that is not as the last one was."""
        if client.outline is not None:
            client.keys = dict.fromkeys(client.keys, client.pushes - 1)
        taken: list[Value] = []
        places: dict[_Key, int] = {}
        for series, value in zip(outline, values, strict=True):
            key = self._keys.get((series.name, series.attributes))
            if key is None or key.family.kind != series.kind:
                key = self._new_key(series)
            if key is not None and key in places:  # it came twice
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
        """Drop what a client pushed."""
        client = self._clients.pop(instance_id, None)
        if client is None:
            return
        for key in client.keys:
            self._drop_value(client, key)

    def rows(self) -> Iterator[SeriesRow]:
        """Yield every value, family by family; what changes meanwhile may be seen or not."""
        for family in list(self._families.values()):
            for key in list(family.keys.values()):
                for client in list(key.places):
                    place = key.places.get(client)
                    if place is None:  # it went meanwhile
                        continue
                    value = client.values[place]
                    labels = f"{client.text},{key.text}" if key.text else client.text
                    if isinstance(value, HistogramValue):
                        yield from _histogram_rows(family.name, labels, value)
                    else:
                        yield SeriesRow(family.name, family.kind, "", labels, value)

    def counts(self) -> Mapping[str, int]:
        """Return clients and series held, and points that found no room."""
        return {"clients": len(self._clients), "series": self._count, "refused": self._refused}

    def _has_room(self, client: _Client, key: _Key) -> bool:
        """Make room for one more series of a client; False when there is none."""
        if len(client.keys) >= self._per_client_max or self._count >= self._series_max:
            if not key.places:
                self._drop(key)
            return False
        self._count += 1
        return True

    def _left_out_but_kept(self, client: _Client) -> list[_Key]:
        """Return the sums that this push leaves out; drop what it leaves out for good."""
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
        """Return the key of attributes not seen before; None when they cannot have one."""
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
    """Return the names that a family takes in Prometheus text; a histogram takes three more."""
    suffixes = HISTOGRAM_SUFFIXES if kind == "histogram" else ()
    return (name, *(name + suffix for suffix in suffixes))


def legal_name(name: str) -> str:
    """Return a metric's name as Prometheus allows it: dots and dashes become underscores."""
    legal = _NOT_IN_NAMES.sub("_", name)
    return legal if legal and not legal[0].isdigit() else f"_{legal}"


def label_text(pairs: Iterable[tuple[str, str]]) -> str:
    """Return labels as Prometheus text has them between its braces."""
    return ",".join([f'{name}="{_escaped(value)}"' for name, value in pairs])


_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_:]")
_NOT_IN_LABELS = re.compile(r"[^a-zA-Z0-9_]")
_RESERVED_LABELS = frozenset((*LABEL_NAMES, "le"))


def _legal_attributes(attributes: Attributes) -> Iterator[tuple[str, str]]:
    """Yield attributes under legal names; the last of those that share one, and none of ours."""
    by_name = {}
    for name, value in attributes:
        legal = _NOT_IN_LABELS.sub("_", name)
        if not legal or legal[0].isdigit():
            legal = f"_{legal}"
        if legal.startswith("__"):  # two underscores are Prometheus's own
            legal = f"attribute{legal}"
        by_name[legal] = value
    yield from ((name, by_name[name]) for name in sorted(by_name) if name not in _RESERVED_LABELS)


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return value


def _sum_of(before: Value, added: Value) -> Value:
    """Return the sum of two values of one kind; other bounds than before begin again."""
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
