"""What clients used of a quota: shared by their names, kept over changes, bounded in memory."""

import pytest

from ottla.broker.quotas import client_quotas
from ottla.broker.quotas.client_quotas import IDLE_MS_MAX, ClientQuotas
from ottla.model.quota_limits import Limits, QuotaEntity
from ottla.model.rates import WindowShape

LOADER = (QuotaEntity("client-id", False, "loader"),)
ANY_CLIENT = (QuotaEntity("client-id", True, ""),)
SHAPE = WindowShape(11, 1_000)


def quotas_of(limit: float, **options: int) -> ClientQuotas:
    quotas = ClientQuotas(SHAPE, **options)
    quotas.set_limits(Limits({LOADER: limit}))
    return quotas


def test_whoever_has_no_limit_is_not_measured() -> None:
    quotas = quotas_of(100)

    assert quotas.record("ANONYMOUS", "other", 1e12, 0) == 0
    assert quotas.usages == {}


def test_a_burst_is_throttled_until_it_is_diluted() -> None:
    quotas = quotas_of(100)

    # 2,000 within ten seconds are 200 a second: as long again brings that to 100.
    assert quotas.record("ANONYMOUS", "loader", 1_000, 0) == 0
    assert quotas.record("ANONYMOUS", "loader", 1_000, 0) == 10_000


def test_two_users_of_one_client_id_share_its_limit() -> None:
    quotas = quotas_of(100)
    quotas.record("anna", "loader", 1_000, 0)

    assert quotas.record("bert", "loader", 1_000, 0) == 10_000


def test_clients_of_a_default_have_a_credit_each() -> None:
    quotas = ClientQuotas(SHAPE)
    quotas.set_limits(Limits({ANY_CLIENT: 100}))
    quotas.record("ANONYMOUS", "a", 2_000, 0)

    assert quotas.record("ANONYMOUS", "b", 1_000, 0) == 0


def test_a_throttle_may_be_capped() -> None:
    quotas = quotas_of(100, throttle_ms_max=1_000)

    assert quotas.record("ANONYMOUS", "loader", 5_000, 0) == 1_000


def test_a_change_of_the_limit_keeps_what_was_used() -> None:
    quotas = quotas_of(1_000)
    quotas.record("ANONYMOUS", "loader", 2_000, 0)

    quotas.set_limits(Limits({LOADER: 100}))

    assert quotas.record("ANONYMOUS", "loader", 0, 0) == 10_000


def test_what_was_not_given_is_taken_back() -> None:
    quotas = quotas_of(100)
    quotas.record("ANONYMOUS", "loader", 1_000, 0)
    assert quotas.record("ANONYMOUS", "loader", 9_000, 0) > 0

    quotas.take_back("ANONYMOUS", "loader", 9_000, 0)

    assert quotas.record("ANONYMOUS", "loader", 0, 0) == 0


def test_the_most_at_once_fills_all_windows_but_one() -> None:
    quotas = quotas_of(100)

    assert quotas.most_at_once("ANONYMOUS", "loader", 0) == 1_000
    assert quotas.most_at_once("ANONYMOUS", "other", 0) is None


def test_over_a_minute_a_client_that_waits_gets_its_limit() -> None:
    quotas = quotas_of(1_000)
    now_ms = used = 0
    while now_ms < 60_000:
        used += 300
        delay_ms = quotas.record("ANONYMOUS", "loader", 300, now_ms)
        now_ms += max(1, delay_ms)

    # What may be used at once comes on top, once.
    assert 60_000 <= used <= 60_000 + 11_000


def test_what_was_idle_for_an_hour_is_forgotten() -> None:
    quotas = quotas_of(100)
    quotas.record("ANONYMOUS", "loader", 1, 0)

    quotas.forget_idle(IDLE_MS_MAX - 1)
    assert len(quotas.usages) == 1
    quotas.forget_idle(IDLE_MS_MAX)
    assert len(quotas.usages) == 0


def test_names_that_strangers_invent_take_no_memory_without_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_quotas, "USAGES_MAX", 10)
    quotas = ClientQuotas(SHAPE)
    quotas.set_limits(Limits({ANY_CLIENT: 100}))

    for number in range(100):
        quotas.record("ANONYMOUS", f"{number}" + "x" * 30_000, 1, number)

    assert len(quotas.usages) == 10
    assert all(len(client_id) <= 256 for _, client_id in quotas.usages)


def test_long_names_that_begin_alike_are_kept_apart() -> None:
    quotas = ClientQuotas(SHAPE)
    quotas.set_limits(Limits({ANY_CLIENT: 100}))

    quotas.record("ANONYMOUS", "x" * 1_000 + "a", 1, 0)
    quotas.record("ANONYMOUS", "x" * 1_000 + "b", 1, 0)

    assert len(quotas.usages) == 2
