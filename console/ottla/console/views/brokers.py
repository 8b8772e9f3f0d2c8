"""Pages of brokers: the list of brokers and their machines, and the page of one broker with its
disks, metrics and settings."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

import trio

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_configs import ConfigEntry, ConfigResource
from ottla.console.cluster_rows import BrokerRow, broker_row, broker_rows, machine_rows
from ottla.console.form_values import number_in
from ottla.console.history.rate_history_driver import traffic_rates
from ottla.console.http_errors import PageError
from ottla.console.listing import listing
from ottla.console.live_views import every
from ottla.console.page_types import Live, Page, PageRequest, PageView
from ottla.console.setting_rows import SettingRow, setting_rows
from ottla.insight.facts.survey_driver import brokers_of
from ottla.insight.rules.disk import TIER_BYTES, TIER_LAG_BYTES, TIER_SEGMENTS
from ottla.insight.rules.traffic_rates import TrafficRates
from ottla.model.errors import OttlaError, RefusedError
from ottla.model.settings.resources import ConfigKind

LIVE_S = 5.0
RATES_S = 3.0
SETTINGS_S = 5.0
ID_DIGITS_MAX = 10
SORTS = {
    "id": lambda one: one.id,
    "state": lambda one: one.standing,
    "machine": lambda one: one.machine,
    "leaders": lambda one: one.leader_count,
    "replicas": lambda one: one.replica_count,
    "disk": lambda one: one.used_share,
    "cpu": lambda one: one.rates.cpu_percent if one.rates else None,
    "in": lambda one: one.rates.bytes_in if one.rates else None,
    "out": lambda one: one.rates.bytes_out if one.rates else None,
}
METRIC_SORTS = {"name": lambda one: one[0], "value": lambda one: one[1]}


async def brokers(request: PageRequest) -> PageView:
    """Return the page that shows all brokers and their machines."""
    rates = await rates_of(request.admin)
    rows = broker_rows(await brokers_of(request.admin), rates)
    found = listing(rows, request.query, text_of=_text_of, sorts=SORTS)
    machines = machine_rows(rows)
    return PageView(
        context={
            "brokers": found,
            "machines": machines if len(machines) < len(rows) else [],
            "is_reported": any(one.is_reported for one in rows),
            "denial": next((one.denial for one in rows if one.denial), ""),
        }
    )


async def broker(request: PageRequest) -> PageView:
    """Return the page that shows one broker."""
    node = broker_id_of(request.path["broker"])
    rates = await rates_of(request.admin)
    surveyed = await brokers_of(request.admin, only=node)
    if not surveyed:
        raise PageError(HTTPStatus.NOT_FOUND, f"there is no broker {node} in this cluster")
    (one,) = surveyed
    loads = {load.broker: load for load in rates.brokers} if rates is not None else {}
    settings, problem = await _settings(request.admin, node)
    is_own = request.query.get("settings", "") != "all"
    shown = [one for one in settings if one.is_changed or not is_own]
    metrics = sorted(one.metrics.items())
    return PageView(
        context={
            "broker": broker_row(one, loads.get(node)),
            "state": one.state,
            "metrics": metrics,
            "tier": _tier_of(one.metrics),
            "settings": listing(
                shown,
                request.query,
                text_of=_key_of,
                sorts={"key": _key_of},
            ),
            "settings_problem": problem,
            "shows_changed_only": is_own,
            "setting_count": len(settings),
        }
    )


class TierFacts(NamedTuple):
    """Tiered storage of the partitions that a broker leads: size and number of copied segments, and
    size of the segments to copy."""

    remote_bytes: int
    segment_count: int
    waiting_bytes: int
    """Size in bytes of the closed segments that are not copied yet."""


def _tier_of(metrics: Mapping[str, float]) -> TierFacts | None:
    """Return the tiered storage of the partitions that a broker leads, or None if the broker has no
    tiered storage."""
    if TIER_BYTES not in metrics:
        return None
    return TierFacts(
        int(metrics[TIER_BYTES]),
        int(metrics.get(TIER_SEGMENTS, 0)),
        int(metrics.get(TIER_LAG_BYTES, 0)),
    )


async def rates_of(admin: Admin) -> TrafficRates | None:
    """Return the rates of the cluster's traffic, or None if they are not available in time."""
    with trio.move_on_after(RATES_S):
        return await traffic_rates(admin)
    return None


async def _settings(admin: Admin, node: int) -> tuple[list[SettingRow], str]:
    """Return table rows about a broker's settings. Also returns the reason why the settings are
    unknown, or an empty text if they are known."""
    resource = ConfigResource(ConfigKind.BROKER, str(node))
    found: dict[str, ConfigEntry] = {}
    try:
        with trio.fail_after(SETTINGS_S):
            found = await admin.describe_configs(
                resource, has_synonyms=True, has_documentation=True
            )
    except trio.TooSlowError:
        return [], f"no answer in {SETTINGS_S:g} s"
    except RefusedError as refusal:
        return [], refusal.message
    except OttlaError as error:
        return [], str(error)
    return setting_rows(found, ConfigKind.BROKER), ""


def _text_of(one: BrokerRow) -> str:
    return f"{one.id} {one.address} {one.rack} {one.machine} {one.standing} {one.version}"


def _key_of(one: SettingRow) -> str:
    return one.key


def broker_id_of(text: str) -> int:
    """Return the broker id in the path of a page. Raises PageError if the path contains no broker
    id."""
    found = number_in(text, digits_max=ID_DIGITS_MAX)
    if found is None:
        raise PageError(HTTPStatus.NOT_FOUND, f"{text[:50]!r} is not the id of a broker")
    return found


PAGES = (
    Page(
        name="brokers",
        path="/brokers",
        title="Brokers",
        command="ottla broker list",
        view=brokers,
        section="Cluster",
        key="b",
        lives=(Live(name="brokers", path="/live/brokers", stream=every(LIVE_S, brokers)),),
    ),
    Page(
        name="broker",
        path="/brokers/{broker}",
        title="Broker",
        command="ottla broker describe {broker}",
        covers=("ottla broker logdirs",),
        view=broker,
    ),
)
