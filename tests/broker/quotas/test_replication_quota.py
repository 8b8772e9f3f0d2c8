"""Quotas of replication: the sampled rate, and the wait of a throttled replica."""

import pytest

from ottla.broker.quotas.replication_quota import (
    WAIT_MS_MAX,
    ReplicationQuota,
    ReplicationQuotas,
)
from ottla.model.ids import NodeId
from ottla.model.limits import INT64_MAX
from ottla.model.quotas.rates import SimpleRate, WindowShape
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.quotas import QuotaConfig


class Time:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.ms = 1_000

    def now(self) -> int:
        return self.ms


def quota_of(limit: int) -> tuple[ReplicationQuota, Time]:
    time = Time()
    return ReplicationQuota(WindowShape(), limit, time.now), time


def test_a_rate_counts_from_its_first_record_on_and_over_one_window_at_least() -> None:
    rate = SimpleRate(WindowShape())

    rate.record(1_000, 5_000)

    assert rate.measured_ms(5_000) == 1_000
    assert rate.per_second(5_999) == 1_000
    assert rate.per_second(9_000) == 250
    assert rate.per_second(16_000) == 0


@pytest.mark.parametrize(
    ("limit", "used", "after_ms", "is_exceeded", "delay_ms"),
    [
        (1_000, 1_000, 0, False, 0),
        (1_000, 1_200, 0, True, WAIT_MS_MAX),
        (1_000, 1_200, 900, True, 301),  # the rest of the first window, and 200 ms
        (1_000, 1_200, 1_000, True, 201),  # (1,200 - 1,000) / 1,000 of the 1,000 ms measured
        (1_000, 1_200, 1_100, True, 101),
        (1_000, 1_200, 1_200, False, 0),
        (1_000, 9_000, 1_000, True, WAIT_MS_MAX),
        (1_000, 9_000, 8_600, True, 401),
        (1_000, 9_000, 9_000, False, 0),
        (0, 0, 0, False, 0),
        (0, 1, 0, True, WAIT_MS_MAX),
        (0, 1, 10_999, True, WAIT_MS_MAX),
        (0, 1, 11_000, False, 0),
        (INT64_MAX, 1 << 62, 0, False, 0),
    ],
)
def test_what_is_above_the_limit_waits_until_it_is_diluted(
    limit: int, used: int, after_ms: int, is_exceeded: bool, delay_ms: int
) -> None:
    quota, time = quota_of(limit)
    quota.record(used)

    time.ms += after_ms

    assert quota.is_exceeded() == is_exceeded
    assert quota.delay_ms() == delay_ms


def test_after_its_delay_a_quota_is_exceeded_no_longer() -> None:
    for used in range(1_001, 1_399, 7):
        quota, time = quota_of(1_000)
        quota.record(used)
        time.ms += 900
        time.ms += quota.delay_ms()
        assert not quota.is_exceeded()


def test_a_changed_limit_keeps_what_was_used() -> None:
    quota, _ = quota_of(10_000)
    quota.record(6_000)

    quota.set_limit(5_000)

    assert quota.is_exceeded()
    quota.set_limit(INT64_MAX)
    assert not quota.is_limited
    assert quota.per_second() == 6_000


def test_each_kind_has_its_limit_and_its_windows_from_the_settings() -> None:
    time = Time()
    config = BrokerConfig(
        node_id=NodeId(1),
        leader_replication_throttled_rate=100,
        follower_replication_throttled_rate=200,
        log_dirs_move_rate_max=300,
        quotas=QuotaConfig(replication_window_count=2, log_dirs_window_s=5),
    )
    quotas = ReplicationQuotas(config, time.now)
    every = (quotas.leader, quotas.follower, quotas.log_dirs)

    assert [one.limit for one in every] == [100, 200, 300]
    for one in every:
        one.record(1_000)
    assert [one.per_second() for one in every] == [1_000, 1_000, 200]
    time.ms += 2_000
    assert [one.per_second() for one in every] == [0, 0, 200]
