"""The gate's paths of share groups do what their names say."""

from collections.abc import Callable

import pytest

from ottla.bench.queues import share_paths
from ottla.bench.queues.share_paths import share_acknowledgements, share_fetches
from ottla.broker.shares.delivery_window import DeliveryState
from ottla.broker.shares.share_partition import AckType
from ottla.jepsen.fuzz.mini_broker import MiniBroker

RUNS = 10


@pytest.mark.parametrize("path_of", [share_fetches, share_acknowledgements])
def test_each_request_accepts_one_record(
    path_of: Callable[[], Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers: list[MiniBroker] = []
    make = share_paths.share_broker

    def made() -> MiniBroker:
        brokers.append(make())
        return brokers[-1]

    monkeypatch.setattr(share_paths, "share_broker", made)
    path = path_of()
    delivery = brokers[0].core.shares.delivery
    (led,) = delivery.shares
    held = led.share.count_in(DeliveryState.ACQUIRED)

    for _ in range(RUNS):
        path()

    assert delivery.figures.acknowledged_records == {AckType.ACCEPT: RUNS}
    assert delivery.figures.failed_acknowledge_count == 0
    assert led.share.window.start_offset == RUNS
    fetched = RUNS if path_of is share_fetches else 0
    assert led.share.count_in(DeliveryState.ACQUIRED) == held - RUNS + fetched
