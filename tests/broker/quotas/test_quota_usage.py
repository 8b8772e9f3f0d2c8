"""Limited clients as they are shown: the throttled first, bounded, removed after an idle hour."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.broker.cluster.quota_usage_api import DescribeQuotaUsageApi
from ottla.model.quotas.quota_limits import QuotaEntity
from ottla.model.quotas.rates import WindowShape
from ottla.node.clock_driver import RealClock
from ottla.node.network.loop_clock import LoopClock
from ottla.node.quotas import quota_metrics
from ottla.node.quotas.idle_driver import IdleUsages
from ottla.node.quotas.quota_metrics import client_families
from ottla.node.quotas.quota_usage import UsageRow, usage_rows
from ottla.node.quotas.request_quotas import RequestQuotas
from ottla.wire.messages.describe_quota_usage_request import DescribeQuotaUsageRequest

PRODUCED = "producer_byte_rate"
ANY = (QuotaEntity("client-id", True, ""),)
LOADER = (QuotaEntity("client-id", False, "loader"), QuotaEntity("user", False, "anna"))


class TrioClock:
    def monotonic_ms(self) -> int:
        return round(trio.current_time() * 1_000)

    def wall_ms(self) -> int:
        return self.monotonic_ms()


@pytest.fixture
def quotas() -> RequestQuotas:
    quotas = RequestQuotas(WindowShape(), RealClock(), LoopClock())
    quotas.set_quotas({ANY: {PRODUCED: 100.0}, LOADER: {PRODUCED: 200.0}})
    return quotas


def test_throttled_clients_come_first_each_under_the_names_it_is_counted_by(
    quotas: RequestQuotas,
) -> None:
    quotas.produce.record("anna", "loader", 3_000, 0)
    quotas.produce.record("bert", "loader", 500, 10)
    quotas.produce.record("bert", "other", 500, 20)

    assert usage_rows(quotas.by_key.items(), 1_000, 10) == [
        UsageRow(PRODUCED, "anna", "loader", 200.0, 300.0, 4_000),
        UsageRow(PRODUCED, "", "other", 100.0, 500 * 1_000 / 10_980, 0),
        UsageRow(PRODUCED, "", "loader", 100.0, 500 * 1_000 / 10_990, 0),
    ]
    assert len(usage_rows(quotas.by_key.items(), 1_000, 2)) == 2


def test_series_are_bounded(quotas: RequestQuotas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_metrics, "SERIES_MAX", 3)
    for index in range(100):
        quotas.produce.record("u", f"client-{index}", 1, index)

    families = {one.name: one for one in client_families(quotas, 100)}
    shown = [one for one in families["kafka_server_produce_byte_rate"].samples if one is not None]

    assert [labels for labels, _ in shown] == [
        ("", "client-99"),
        ("", "client-98"),
        ("", "client-97"),
    ]
    assert len(list(families["kafka_server_produce_throttle_time"].samples)) == 3


async def test_what_was_idle_for_an_hour_is_forgotten_without_a_request(
    quotas: RequestQuotas, autojump_clock: MockClock
) -> None:
    clock = TrioClock()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(IdleUsages(clock, quotas).run)
        quotas.produce.record("u", "a", 1, clock.monotonic_ms())
        await trio.sleep(3_599)
        assert len(quotas.produce.usages) == 1
        await trio.sleep(62)
        assert not quotas.produce.usages
        nursery.cancel_scope.cancel()


def test_an_operator_is_shown_the_clients_asked_for(quotas: RequestQuotas) -> None:
    quotas.produce.record("bert", "other", 2_000, 0)
    quotas.produce.record("bert", "loader", 500, 0)
    api = DescribeQuotaUsageApi(quotas, lambda: 1_000)
    context: Any = None

    answer = api.handle(context, DescribeQuotaUsageRequest(count_max=1))

    (one,) = answer.clients
    assert (one.quota_key, one.user, one.client_id) == (PRODUCED, "", "other")
    assert (one.limit, one.rate, one.throttle_ms) == (100.0, 200.0, 9_000)
    assert api.handle(context, DescribeQuotaUsageRequest(count_max=-5)).clients == []
    assert len(api.handle(context, DescribeQuotaUsageRequest(count_max=1 << 30)).clients) == 2
