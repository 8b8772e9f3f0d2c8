"""Connections by broker, listener and address: which are served, which wait, which are closed."""

from random import Random

import pytest

from ottla.model.quotas.quota_limits import ClientEntity, QuotaEntity
from ottla.model.quotas.rates import IDLE_MS_MAX, WindowShape
from ottla.model.settings.connections import ConnectionBounds
from ottla.node.network import connection_quotas
from ottla.node.network.connection_quotas import ConnectionQuotas

SHAPE = WindowShape(11, 1_000)
CLIENTS, BROKERS = "EXTERNAL", "INTERNAL"
ONE, TWO = "10.0.0.1", "10.0.0.2"
RATE = "connection_creation_rate"


def quotas_of(bounds: ConnectionBounds | None = None, **ips: float) -> ConnectionQuotas:
    quotas = ConnectionQuotas(
        SHAPE, listeners=[CLIENTS, BROKERS], inter_broker=BROKERS, bounds=bounds
    )
    limits: dict[ClientEntity, dict[str, float]] = {
        (QuotaEntity("ip", name == "any", "" if name == "any" else ONE),): {RATE: rate}
        for name, rate in ips.items()
    }
    quotas.set_ip_limits(limits)
    return quotas


def accept(quotas: ConnectionQuotas, host: str = ONE, now_ms: int = 0) -> bool:
    """Accept as an acceptor does; return whether the connection is served."""
    assert quotas.wait_ms(CLIENTS, now_ms) == 0
    return quotas.admit(CLIENTS, host, now_ms) is None


def test_without_bounds_every_connection_is_served_at_once() -> None:
    quotas = quotas_of()

    assert all(accept(quotas) for _ in range(10_000))


def test_above_the_count_of_the_broker_connections_wait_until_one_closes() -> None:
    quotas = quotas_of(ConnectionBounds(count_max=2))
    accept(quotas)
    accept(quotas)

    assert quotas.wait_ms(CLIENTS, 0) is None
    quotas.on_closed(CLIENTS, ONE)
    assert quotas.wait_ms(CLIENTS, 0) == 0


def test_above_the_count_of_a_listener_only_that_listener_waits() -> None:
    bounds = ConnectionBounds(count_max_of_listeners={"external": 1, "internal": 0})
    quotas = quotas_of(bounds)
    accept(quotas)

    assert quotas.wait_ms(CLIENTS, 0) is None
    assert quotas.wait_ms(BROKERS, 0) is None, "a bound of its own holds for any listener"
    quotas.bounds = ConnectionBounds(count_max_of_listeners={"external": 1})
    assert quotas.wait_ms(BROKERS, 0) == 0


def test_a_higher_bound_lets_those_in_who_wait() -> None:
    quotas = quotas_of(ConnectionBounds(count_max=0))
    assert quotas.wait_ms(CLIENTS, 0) is None

    quotas.bounds = ConnectionBounds(count_max=1)

    assert quotas.wait_ms(CLIENTS, 0) == 0


def test_the_listener_of_brokers_passes_the_bounds_of_the_broker() -> None:
    quotas = quotas_of(ConnectionBounds(count_max=1, rate_max=1))
    accept(quotas)
    for _ in range(100):
        assert quotas.wait_ms(BROKERS, 0) == 0
        assert quotas.admit(BROKERS, TWO, 0) is None
        assert quotas.has_excess

    assert quotas.broker_rate(0) == 0.1, "only the client's connection counts"


def test_an_only_listener_is_not_protected() -> None:
    quotas = ConnectionQuotas(
        SHAPE, listeners=[BROKERS], inter_broker=BROKERS, bounds=ConnectionBounds(count_max=0)
    )

    assert quotas.protected_listener is None
    assert quotas.wait_ms(BROKERS, 0) is None


@pytest.mark.parametrize(
    "bounds",
    [ConnectionBounds(rate_max=10), ConnectionBounds(rate_max_of_listeners={"external": 10})],
)
def test_above_a_rate_the_listener_waits_for_what_brings_it_back(bounds: ConnectionBounds) -> None:
    quotas = quotas_of(bounds)
    for _ in range(100):
        assert accept(quotas)
    # 101 in ten seconds are 10.1 a second: (10.1 - 10) / 10 * 10 s are 100 ms.
    assert accept(quotas)
    assert quotas.wait_ms(CLIENTS, 0) == 100
    assert quotas.wait_ms(CLIENTS, 99) == 1
    assert quotas.wait_ms(BROKERS, 0) == 0
    assert accept(quotas, now_ms=100)


def test_a_listener_waits_for_one_window_at_most() -> None:
    quotas = quotas_of(ConnectionBounds(rate_max=10))
    for _ in range(100):
        accept(quotas)
    quotas.bounds = ConnectionBounds(rate_max=1)
    accept(quotas)
    assert quotas.wait_ms(CLIENTS, 0) == 1_000

    quotas.bounds = ConnectionBounds(rate_max=0)
    accept(quotas, now_ms=1_000)
    assert quotas.wait_ms(CLIENTS, 1_000) == 1_000


def test_above_the_rate_of_its_address_a_connection_is_closed_later_and_counts_nowhere() -> None:
    quotas = quotas_of(one=1)
    for _ in range(10):
        assert accept(quotas)

    assert quotas.admit(CLIENTS, ONE, 0) == 1_000
    assert quotas.throttled_ip_count == 1
    assert quotas.ip_rates(0, 10) == {ONE: 1.0}
    assert quotas.broker_rate(0) == 1.0
    assert quotas.listener_rates(0) == {CLIENTS: 1.0, BROKERS: 0}
    assert accept(quotas, TWO), "another address has no limit"


def test_a_storm_from_one_address_does_not_make_its_listener_wait() -> None:
    quotas = quotas_of(ConnectionBounds(rate_max=100), one=1)
    for index in range(5_000):
        quotas.admit(CLIENTS, ONE, index)
        assert quotas.wait_ms(CLIENTS, index) == 0

    assert accept(quotas, TWO, 5_000)


def test_addresses_of_the_default_have_a_rate_each() -> None:
    quotas = quotas_of(any=0.1)

    assert accept(quotas, ONE)
    assert not accept(quotas, ONE)
    assert accept(quotas, TWO)


def test_a_limit_of_nothing_refuses_every_connection() -> None:
    quotas = quotas_of(one=0)

    assert quotas.admit(CLIENTS, ONE, 0) == 1_000
    assert quotas.ip_rates(0, 10) == {ONE: 0}


def test_an_address_is_the_same_however_it_is_written() -> None:
    quotas = quotas_of()
    quotas.set_ip_limits({(QuotaEntity("ip", False, "0:0:0:0:0:0:0:1"),): {RATE: 0}})

    assert quotas.admit(CLIENTS, "::1", 0) == 1_000


def test_above_the_count_of_its_address_a_connection_is_closed_at_once() -> None:
    bounds = ConnectionBounds(count_max_per_ip=1, count_max_of_ips={TWO: 0})
    quotas = quotas_of(bounds)

    assert accept(quotas, ONE)
    assert quotas.admit(CLIENTS, ONE, 0) == 0
    assert quotas.admit(CLIENTS, TWO, 0) == 0
    assert quotas.refused_ip_count == 2
    quotas.on_closed(CLIENTS, ONE)
    assert accept(quotas, ONE)


def test_a_change_of_limits_keeps_what_was_counted() -> None:
    quotas = quotas_of(one=10)
    for _ in range(50):
        accept(quotas)

    quotas.set_ip_limits({(QuotaEntity("ip", False, ONE),): {RATE: 1}})

    assert quotas.admit(CLIENTS, ONE, 0) == 1_000


def test_idle_addresses_are_forgotten_and_all_of_them_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_quotas, "IPS_MAX", 3)
    quotas = quotas_of(any=5)
    for index in range(10):
        accept(quotas, f"10.1.0.{index}", now_ms=index)
    assert list(quotas.ip_rates(10, 10)) == ["10.1.0.7", "10.1.0.8", "10.1.0.9"]
    assert list(quotas.ip_rates(10, 2)) == ["10.1.0.8", "10.1.0.9"]

    quotas.forget_idle(IDLE_MS_MAX + 8)

    assert list(quotas.ip_rates(IDLE_MS_MAX + 8, 10)) == ["10.1.0.9"]


def test_counts_return_to_nothing() -> None:
    random, quotas = Random(7), quotas_of(ConnectionBounds(count_max_per_ip=3), any=50)
    held: list[str] = []
    for now_ms in range(0, 60_000, 50):
        if held and random.random() < 0.4:
            quotas.on_closed(CLIENTS, held.pop(random.randrange(len(held))))
        else:
            host = random.choice([ONE, TWO, "10.0.0.3"])
            if accept(quotas, host, now_ms):
                held.append(host)
        assert max(map(held.count, held), default=0) <= 3
    for host in held:
        quotas.on_closed(CLIENTS, host)

    assert quotas._total == 0
    assert not quotas._by_ip


def test_over_all_windows_a_listener_accepts_what_its_rate_allows() -> None:
    """Bursts use their credit as soon as it accrues, which is every eleven windows."""
    quotas = quotas_of(ConnectionBounds(rate_max=20))
    now_ms, counted = 0, 0
    while now_ms < 77_000:
        wait_ms = quotas.wait_ms(CLIENTS, now_ms)
        assert wait_ms is not None
        if wait_ms:
            now_ms += wait_ms
            continue
        quotas.admit(CLIENTS, ONE, now_ms)
        counted += now_ms >= 22_000
        now_ms += 1

    assert counted == pytest.approx(20 * 55, rel=0.05)
