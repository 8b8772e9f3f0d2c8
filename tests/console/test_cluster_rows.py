"""Rows of brokers and settings, without a cluster."""

from typing import Any

import pytest

from ottla.client.admin_parts.admin_configs import ConfigEntry, ConfigSynonym
from ottla.console.cluster_rows import broker_row, broker_rows, machine_rows
from ottla.console.setting_rows import setting_rows
from ottla.insight.facts.survey_driver import (
    SurveyedBroker,
    SurveyedDirectory,
)
from ottla.insight.rules.traffic_rates import BrokerRates, TrafficRates
from ottla.model.settings.resources import ConfigKind, ConfigSource
from tests.console.console_fixture import open_browser

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"


def broker(number: int, **given: Any) -> SurveyedBroker:
    usual: dict[str, Any] = {
        "host": "h",
        "port": 9092,
        "rack": None,
        "is_fenced": False,
        "state": "RUNNING",
        "metrics": {"partitions.led": 3.0, "partitions": 7.0},
    }
    return SurveyedBroker(id=number, **{**usual, **given})


def test_a_healthy_broker_is_good() -> None:
    row = broker_row(broker(1))
    assert (row.kind, row.standing, row.reasons) == ("good", "active", ())
    assert (row.leader_count, row.replica_count, row.offline_count) == (3, 7, None)
    assert row.used_share is None


@pytest.mark.parametrize(
    ("given", "kind", "standing"),
    [
        ({"is_fenced": True}, "bad", "fenced"),
        ({"failure": "no answer"}, "bad", "unreachable"),
        ({"problems": ["orders-1 is offline"]}, "bad", "active"),
        ({"warnings": ["the disk fills"]}, "warning", "active"),
        ({"is_cordoned": True}, "warning", "active, cordoned"),
        ({"state": "DRAINING"}, "warning", "draining"),
        ({"denial": "User:bob may not"}, "neutral", "not known"),
    ],
)
def test_other_brokers_have_a_reason(given: dict[str, Any], kind: str, standing: str) -> None:
    row = broker_row(broker(1, **given))
    assert (row.kind, row.standing) == (kind, standing)


def test_a_broker_of_apache_kafka_is_good_and_reports_nothing() -> None:
    row = broker_row(broker(1, metrics={}, state="not reported"))
    assert (row.kind, row.is_reported, row.leader_count) == ("good", False, None)


def test_the_fullest_disk_counts_and_unknown_sizes_are_none() -> None:
    disks = [
        SurveyedDirectory(path="/a", state="ok", total_bytes=100, usable_bytes=60),
        SurveyedDirectory(path="/b", state="filling", total_bytes=100, usable_bytes=10),
        SurveyedDirectory(path="/c", state="ok", total_bytes=-1, usable_bytes=-1),
    ]
    row = broker_row(broker(1, directories=disks))
    assert row.used_share == 0.9
    assert [(one.used_share, one.kind) for one in row.disks] == [
        (0.4, "good"),
        (0.9, "warning"),
        (None, "good"),
    ]


def test_brokers_of_one_machine_are_listed_together() -> None:
    rows = broker_rows(
        [broker(1, machine="m"), broker(2, machine="m", is_fenced=True), broker(3, host="z")],
        TrafficRates([BrokerRates(2, 50.0, 10.0, 1.0, 2.0)], [], [], [], []),
    )
    assert [one.rates is not None for one in rows] == [False, True, False]
    machines = machine_rows(rows)
    assert [(one.name, [b.id for b in one.brokers], one.unhealthy_count) for one in machines] == [
        ("m", [1, 2], 1),
        ("z", [3], 0),
    ]


def test_secret_settings_have_no_value_at_any_level() -> None:
    secret = "open sesame"
    entry = ConfigEntry(
        secret,
        ConfigSource.BROKER,
        False,
        True,
        (
            ConfigSynonym("k", secret, ConfigSource.BROKER),
            ConfigSynonym("k", secret, ConfigSource.DEFAULT),
        ),
    )
    (row,) = setting_rows({"ssl.keystore.password": entry}, ConfigKind.BROKER)
    assert secret not in repr(row)
    assert row.is_changed


def test_a_setting_differs_from_the_default_of_the_cluster_or_of_its_declaration() -> None:
    given = ConfigEntry(
        "5", ConfigSource.TOPIC, False, False, (ConfigSynonym("a", "7", ConfigSource.DEFAULT),)
    )
    declared = ConfigEntry("delete", ConfigSource.DEFAULT, False, False)
    unknown = ConfigEntry("x", ConfigSource.UNKNOWN, True, False, type=99)
    rows = setting_rows(
        {"segment.ms": given, "cleanup.policy": declared, "new.setting": unknown}, ConfigKind.TOPIC
    )
    assert [(one.key, one.default, one.is_changed) for one in rows] == [
        ("cleanup.policy", "delete", False),
        ("new.setting", None, False),
        ("segment.ms", "7", True),
    ]


async def test_hostile_names_of_machines_are_shown_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        broker(1, host=HOSTILE, rack=HOSTILE, machine=HOSTILE, version=HOSTILE, problems=[HOSTILE]),
        broker(2, host=HOSTILE, rack=HOSTILE, machine=HOSTILE, failure=HOSTILE),
    ]

    async def brokers_of(*_: Any, **__: Any) -> list[SurveyedBroker]:
        return found

    async def nothing(*_: Any) -> None:
        return None

    monkeypatch.setattr("ottla.console.views.brokers.brokers_of", brokers_of)
    monkeypatch.setattr("ottla.console.views.brokers.rates_of", nothing)
    async with open_browser(None) as browser:
        html = await browser.get("/brokers")
    assert "<script>" not in html
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m\\u202e" in html
