"""Usage of client quotas: shared by client names, kept over changes, bounded in memory."""

import heapq
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from ottla.model.quotas.quota_limits import Limits, QuotaEntity
from ottla.model.quotas.rates import IDLE_MS_MAX, WindowShape
from ottla.node.quotas import client_quotas
from ottla.node.quotas.client_quotas import ClientQuotas

LOADER = (QuotaEntity("client-id", False, "loader"),)
ANY_CLIENT = (QuotaEntity("client-id", True, ""),)
SHAPE = WindowShape(11, 1_000)
MOST = 1 << 20


def quotas_of(limit: float, **options: Any) -> ClientQuotas:
    quotas = ClientQuotas(SHAPE, **options)
    quotas.set_limits(Limits({LOADER: limit}))
    return quotas


def test_a_client_without_a_quota_is_not_measured() -> None:
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


def test_records_without_credit_are_not_given_and_not_charged() -> None:
    quotas = quotas_of(100)
    assert quotas.offer("ANONYMOUS", "loader", 900, 0) == (True, 0)

    assert quotas.offer("ANONYMOUS", "loader", 300, 0) == (False, 2_000)
    assert quotas.offer("ANONYMOUS", "loader", 100, 0) == (True, 0)
    assert quotas.offer("ANONYMOUS", "loader", 300, 2_999) == (False, 1)
    assert quotas.offer("ANONYMOUS", "loader", 300, 3_000) == (True, 0)
    (usage,) = quotas.usages.values()
    assert usage.rate.per_second(3_000) == 130, "what was not given counts nowhere"


def test_a_batch_larger_than_all_credit_is_given_to_a_client_that_saved_up() -> None:
    quotas = quotas_of(100)

    # Kafka never gives it.  1,500 are 500 more than can be saved up: paid off in 5 s.
    assert quotas.offer("ANONYMOUS", "loader", 1_500, 0) == (True, 5_000)
    assert quotas.offer("ANONYMOUS", "loader", 1_500, 5_000) == (False, 10_000)
    assert quotas.offer("ANONYMOUS", "loader", 1_500, 15_000) == (True, 5_000)


def test_to_a_client_without_a_limit_everything_is_given() -> None:
    assert quotas_of(100).offer("ANONYMOUS", "other", 1e12, 0) == (True, 0)


def test_the_most_at_once_is_the_credit_and_the_share_of_a_window_at_least() -> None:
    quotas = quotas_of(100)
    found = quotas.find("ANONYMOUS", "loader", 0)

    assert quotas.find("ANONYMOUS", "other", 0) is None
    assert found is not None
    assert quotas.most_at_once(found, MOST, 0) == 1_000
    assert quotas.most_at_once(found, 999, 0) == 999
    assert quotas.most_at_once(found, 0, 0) == 1
    quotas.record("ANONYMOUS", "loader", 700, 0)
    assert quotas.most_at_once(found, MOST, 0) == 300
    assert quotas.most_at_once(found, MOST, 1_000) == 400
    quotas.record("ANONYMOUS", "loader", 400, 1_000)
    assert quotas.most_at_once(found, MOST, 1_000) == 100


@pytest.mark.parametrize("window_count", [1, 2, 11])
def test_a_first_burst_is_throttled_by_the_formula_of_kafka(window_count: int) -> None:
    quotas = ClientQuotas(WindowShape(window_count, 1_000))
    quotas.set_limits(Limits({LOADER: 100}))
    credit_s = max(1, window_count - 1)

    # X = (O - T) / T * W
    over = 250 * credit_s
    delay_ms = quotas.record("ANONYMOUS", "loader", over, 0)

    assert delay_ms == round((over / credit_s - 100) / 100 * credit_s * 1_000)


def test_every_step_equals_a_plain_account() -> None:
    """Tokens accrued at the limit, ten seconds of it at most, less those used."""
    random, quotas = Random(20), quotas_of(1_000)
    credit, last_ms, now_ms = 10_000.0, 0, 0
    for _ in range(3_000):
        now_ms += random.randrange(3_000)
        value = random.randrange(4_000)
        credit = min(10_000.0, credit + (now_ms - last_ms))
        last_ms = now_ms
        if random.random() < 0.5:
            credit -= value
            due_ms = round(-credit) if credit < 0 else 0
            assert quotas.record("ANONYMOUS", "loader", value, now_ms) == due_ms
        elif round(value - credit) > 0:
            offer = quotas.offer("ANONYMOUS", "loader", value, now_ms)
            assert offer == (False, round(value - credit))
        else:
            credit -= value
            assert quotas.offer("ANONYMOUS", "loader", value, now_ms).is_given


WARM_UP_MS = 20_000
NETWORK_BYTES_PER_MS = 150_000


def rate_of(
    quotas: ClientQuotas, turn: Callable[[int], tuple[int, int]], instance_count: int
) -> float:
    """Return the bytes a second of clients that take turns as fast as they may, for 90 s."""
    turns = [(7 * index, index) for index in range(instance_count)]
    used = 0
    while turns[0][0] < WARM_UP_MS + 90_000:
        now_ms, index = heapq.heappop(turns)
        delay_ms, taken = turn(now_ms)
        used += taken if now_ms >= WARM_UP_MS else 0
        on_the_way_ms = 1 + taken // NETWORK_BYTES_PER_MS
        heapq.heappush(turns, (now_ms + max(delay_ms, on_the_way_ms), index))
    return used / 90


@pytest.mark.parametrize("limit", [1e6, 5e6, 20e6])
@pytest.mark.parametrize("instance_count", [1, 2])
@pytest.mark.parametrize("request_bytes", [64 << 10, 1 << 20])
def test_producers_get_their_limit(limit: float, instance_count: int, request_bytes: int) -> None:
    quotas = quotas_of(limit)

    def turn(now_ms: int) -> tuple[int, int]:
        return quotas.record("ANONYMOUS", "loader", request_bytes, now_ms), request_bytes

    assert rate_of(quotas, turn, instance_count) == pytest.approx(limit, rel=0.02)


@pytest.mark.parametrize("limit", [1e6, 5e6, 20e6])
@pytest.mark.parametrize("instance_count", [1, 2])
@pytest.mark.parametrize("fetch_bytes", [256 << 10, 1 << 20, 50 << 20])
@pytest.mark.parametrize("batch_bytes", [16 << 10, 1 << 20])
def test_consumers_get_their_limit(
    limit: float, instance_count: int, fetch_bytes: int, batch_bytes: int
) -> None:
    """The limit holds for any fetch size: Kafka grants 0.5 of 1 MB/s to a consumer that asks for 50
    MiB."""
    quotas = quotas_of(limit)

    def turn(now_ms: int) -> tuple[int, int]:
        found = quotas.find("ANONYMOUS", "loader", now_ms)
        assert found is not None
        most = quotas.most_at_once(found, fetch_bytes, now_ms)
        whole_batches = max(1, most // batch_bytes)
        is_given, delay_ms = quotas.offer(
            "ANONYMOUS", "loader", whole_batches * batch_bytes, now_ms
        )
        return delay_ms, whole_batches * batch_bytes if is_given else 0

    assert rate_of(quotas, turn, instance_count) == pytest.approx(limit, rel=0.03)


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


@pytest.mark.interpreted_only("sets a constant")
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
