"""Quotas of copies to the object store, and of reads from it."""

from ottla.broker.quotas.tier_quotas import COPY_RATE, FETCH_RATE, TierQuotas
from ottla.model.settings.quotas import QuotaConfig
from ottla.node.part_registry import PartRegistry
from tests.broker.conftest import HandClock


async def test_a_copy_waits_until_the_rate_has_fallen_to_the_limit(
    autojump_clock: object,
) -> None:
    clock = HandClock()
    quotas = TierQuotas(QuotaConfig(remote_copy_rate_max=1_000), clock.monotonic_ms)
    await quotas.throttle_copy(5_000)
    clock.now_ms += 1_000
    assert quotas.copy.is_exceeded()
    clock.now_ms += 4_500
    assert not quotas.copy.is_exceeded()
    await quotas.throttle_copy(1)


def test_limits_can_be_changed_while_the_broker_runs() -> None:
    clock = HandClock()
    quotas = TierQuotas(QuotaConfig(), clock.monotonic_ms)
    parts = PartRegistry(clock)
    quotas.register_with(parts)
    assert not quotas.fetch.is_limited
    assert parts.all_figures() == {}
    parts.settings[FETCH_RATE](2_000)
    parts.settings[COPY_RATE](1_000)
    assert (quotas.copy.limit, quotas.fetch.limit) == (1_000, 2_000)
    quotas.fetch.record(9_000)
    clock.now_ms += 1_000
    limits = {"tier.copy.limit": 1_000, "tier.copy.rate": 0, "tier.fetch.limit": 2_000}
    assert parts.all_figures() == {**limits, "tier.fetch.rate": quotas.fetch.per_second()}
    assert quotas.fetch.delay_ms() > 0
