"""Derives table rows about brokers, disks and partitions for pages, from a survey of the cluster.
Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ottla.insight.facts.survey_driver import SurveyedBroker, SurveyedDirectory
from ottla.insight.rules.health import broker_reasons, broker_standing, shown_standing
from ottla.insight.rules.traffic_rates import BrokerRates, TrafficRates
from ottla.model.values import frozen

LED_METRIC, REPLICAS_METRIC, OFFLINE_METRIC = (
    "partitions.led",
    "partitions",
    "partitions.offline",
)
CONNECTIONS_METRIC = "network.connections"


@frozen(kw_only=True)
class DiskRow:
    """Table row about the space on the volume of one log directory of a broker."""

    path: str
    used_bytes: int | None
    total_bytes: int | None
    state: str
    """State of the directory's volume: ok, filling or full."""

    @property
    def used_share(self) -> float | None:
        """Used share of the directory's volume, from 0 to 1, or None if unknown."""
        if self.used_bytes is None or not self.total_bytes:
            return None
        return min(1.0, self.used_bytes / self.total_bytes)

    @property
    def kind(self) -> str:
        """Kind of the badge that shows the volume's state: good, warning or bad."""
        return {"ok": "good", "filling": "warning"}.get(self.state, "bad")


@frozen(kw_only=True)
class BrokerRow:
    """Table row about one broker."""

    id: int
    address: str
    rack: str
    machine: str
    version: str
    standing: str
    """State of the broker in words, such as "active, cordoned"."""
    kind: str
    """Kind of the badge that shows the broker's state: good, warning or bad."""
    reasons: tuple[str, ...]
    """Reasons why the broker is unhealthy."""
    warnings: tuple[str, ...]
    disks: tuple[DiskRow, ...]
    is_reported: bool
    """True if the broker reports its state, which brokers of Apache Kafka do not."""
    denial: str
    """Reason why the user may not read the broker's state. Empty if the user may read it."""
    leader_count: int | None
    replica_count: int | None
    offline_count: int | None
    connection_count: int | None
    rates: BrokerRates | None

    @property
    def used_share(self) -> float | None:
        """Used share of the broker's fullest volume, from 0 to 1, or None if unknown."""
        return max(
            (one.used_share for one in self.disks if one.used_share is not None), default=None
        )


@frozen(kw_only=True)
class MachineRow:
    """Table row about one machine and the brokers on it."""

    name: str
    brokers: tuple[BrokerRow, ...]

    @property
    def unhealthy_count(self) -> int:
        """Number of brokers on the machine that are unhealthy."""
        return sum(one.kind in ("warning", "bad") for one in self.brokers)


def disk_rows(directories: Iterable[SurveyedDirectory]) -> tuple[DiskRow, ...]:
    """Return a table row for the volume of each log directory of a broker. Negative numbers in
    `directories` are unknown values."""
    return tuple(
        DiskRow(
            path=one.path,
            used_bytes=one.total_bytes - one.usable_bytes if one.total_bytes >= 0 else None,
            total_bytes=one.total_bytes if one.total_bytes >= 0 else None,
            state=one.state,
        )
        for one in directories
    )


def broker_rows(brokers: Iterable[SurveyedBroker], rates: TrafficRates | None) -> list[BrokerRow]:
    """Return a table row for each broker, in the order of `brokers`."""
    rates_of = {one.broker: one for one in rates.brokers} if rates is not None else {}
    return [broker_row(one, rates_of.get(one.id)) for one in brokers]


def broker_row(broker: SurveyedBroker, rates: BrokerRates | None = None) -> BrokerRow:
    """Return the table row about one broker."""
    standing = broker_standing(broker)
    reasons = tuple(broker_reasons(broker))
    kind = "good"
    if broker.denial and not broker.is_fenced:
        standing, kind = "not known", "neutral"
    elif broker.is_fenced or broker.failure or broker.problems:
        kind = "bad"
    elif reasons or broker.warnings or broker.is_cordoned:
        kind = "warning"
    return BrokerRow(
        id=broker.id,
        address=broker.address,
        rack=broker.rack or "",
        machine=broker.machine or broker.host,
        version=broker.version,
        standing=shown_standing(standing, broker.is_cordoned),
        kind=kind,
        reasons=reasons,
        warnings=tuple(broker.warnings),
        disks=disk_rows(broker.directories),
        is_reported=bool(broker.metrics),
        denial=broker.denial,
        leader_count=_count(broker.metrics, LED_METRIC),
        replica_count=_count(broker.metrics, REPLICAS_METRIC),
        offline_count=_count(broker.metrics, OFFLINE_METRIC),
        connection_count=_count(broker.metrics, CONNECTIONS_METRIC),
        rates=rates,
    )


def machine_rows(brokers: Sequence[BrokerRow]) -> list[MachineRow]:
    """Return table rows about the brokers' machines, in order of the machines' names."""
    by_name: dict[str, list[BrokerRow]] = defaultdict(list)
    for one in brokers:
        by_name[one.machine].append(one)
    return [MachineRow(name=name, brokers=tuple(rows)) for name, rows in sorted(by_name.items())]


def _count(metrics: Mapping[str, float], name: str) -> int | None:
    found = metrics.get(name)
    return None if found is None else int(found)
