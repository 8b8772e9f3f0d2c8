"""Quotas by an operator's own callback: its limits apply, and its errors are logged."""

import math
from collections.abc import Mapping
from typing import Any

import pytest

from ottla.model.errors import ConfigError
from ottla.model.quotas.quota_callback import CustomLimits, QuotaCallback, load_callback
from ottla.model.quotas.quota_limits import ClientEntity, QuotaEntity
from ottla.model.quotas.rates import WindowShape
from ottla.model.settings.broker import load_broker_config
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.network.loop_clock import LoopClock
from ottla.node.quotas.request_quotas import RequestQuotas

LOADER = (QuotaEntity("client-id", False, "loader"),)
RATE = "producer_byte_rate"


class Tenants:
    """Clients named tenant/… share the limit of their tenant."""

    def __init__(self) -> None:
        self.limits: dict[str, Any] = {"red": 100}
        self.has_changed = False
        self.calls: list[Any] = []
        self.configs: Mapping[str, str] = {}
        self.asked = 0

    def configure(self, configs: Mapping[str, str]) -> None:
        self.configs = configs

    def quota_metric_tags(
        self, quota_type: str, principal: str, client_id: str
    ) -> Mapping[str, str] | None:
        self.asked += 1
        if client_id == "broken":
            raise RuntimeError("no tenant")
        return {"tenant": client_id.split("/")[0]} if "/" in client_id else None

    def quota_limit(self, quota_type: str, metric_tags: Mapping[str, str]) -> float | None:
        return self.limits.get(metric_tags["tenant"]) if quota_type == "PRODUCE" else None

    def update_quota(self, quota_type: str, entity: ClientEntity, value: float) -> None:
        self.calls.append((quota_type, entity, value))

    def remove_quota(self, quota_type: str, entity: ClientEntity) -> None:
        self.calls.append((quota_type, entity))

    def quota_reset_required(self, quota_type: str) -> bool:
        has_changed, self.has_changed = self.has_changed, False
        return has_changed


class RefusingTenants(Tenants):
    def configure(self, configs: Mapping[str, str]) -> None:
        raise ValueError("no directory of tenants")


class World:
    def __init__(self) -> None:
        self.errors = UnexpectedErrors()
        self.tenants = Tenants()
        callback: QuotaCallback = self.tenants
        self.quotas = RequestQuotas(
            WindowShape(),
            HandClock(),
            LoopClock(),
            lambda quota_type: CustomLimits(quota_type, callback, self.errors),
        )

    def produce(self, client_id: str, value: float) -> int:
        return self.quotas.produce.record("u", client_id, value, 0)


class HandClock:
    def monotonic_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 0


def test_clients_share_what_the_callback_counts_together() -> None:
    world = World()

    assert world.quotas.is_active
    assert world.produce("red/a", 1_000) == 0
    assert world.produce("red/b", 1_000) == 10_000
    assert world.produce("blue/a", 1e9) == 0
    assert world.produce("other", 1e9) == 0
    assert world.quotas.fetch.record("u", "red/a", 1e9, 0) == 0


def test_a_client_is_looked_up_once_until_limits_change() -> None:
    world = World()
    for _ in range(5):
        world.produce("red/a", 200)
    assert world.tenants.asked == 1

    world.tenants.limits["red"] = 50
    world.tenants.has_changed = True

    assert world.produce("red/a", 0) == 10_000, "1,000 in ten seconds where 500 are allowed"
    assert world.tenants.asked == 2


@pytest.mark.parametrize("limit", [0, -1, math.nan, math.inf, "many", [1]])
def test_what_is_no_limit_is_noted_and_limits_nothing(limit: Any) -> None:
    world = World()
    world.tenants.limits["red"] = limit

    assert world.produce("red/a", 1e9) == 0
    assert world.errors.counts["quota callback"] == 1


def test_a_callback_that_fails_is_noted_and_limits_nothing() -> None:
    world = World()

    assert world.produce("broken", 1e9) == 0
    assert world.errors.counts["quota callback"] == 1
    assert world.produce("red/a", 2_000) == 10_000


def test_limits_of_the_cluster_are_reported_where_they_change() -> None:
    world = World()
    quotas: dict[ClientEntity, dict[str, float]] = {LOADER: {RATE: 5.0}}

    world.quotas.set_quotas(quotas)
    world.quotas.set_quotas(quotas)
    world.quotas.set_quotas({LOADER: {RATE: 6.0}})
    world.quotas.set_quotas({})

    assert world.tenants.calls == [
        ("PRODUCE", LOADER, 5.0),
        ("PRODUCE", LOADER, 6.0),
        ("PRODUCE", LOADER),
    ]
    assert world.produce("loader", 1e9) == 0, "what they mean is up to the callback"


def test_a_callback_is_loaded_by_its_name_and_configured() -> None:
    callback = load_callback(f"{__name__}:Tenants", {"node.id": "1"})

    assert isinstance(callback, Tenants)
    assert callback.configs == {"node.id": "1"}


@pytest.mark.parametrize("name", ["no.such.module:Thing", f"{__name__}:Nothing"])
def test_a_callback_that_is_not_there_stops_the_start(name: str) -> None:
    with pytest.raises(ConfigError, match=r"client\.quota\.callback\.class.*cannot start"):
        load_callback(name, {})


def test_a_callback_may_refuse_the_start() -> None:
    with pytest.raises(ConfigError, match="no directory of tenants"):
        load_callback(f"{__name__}:RefusingTenants", {})


def test_a_class_of_java_is_refused_with_the_reason() -> None:
    texts = {
        "node.id": "1",
        "controller.quorum.voters": "101@localhost:9093",
        "client.quota.callback.class": "org.example.TenantQuotas",
    }

    with pytest.raises(ConfigError, match="one of Java cannot be loaded"):
        load_broker_config(texts)
    config, _ = load_broker_config({**texts, "client.quota.callback.class": "tenants.quotas:Own"})
    assert config.quotas.callback_class == "tenants.quotas:Own"
