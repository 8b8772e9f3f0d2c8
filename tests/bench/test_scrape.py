"""The measurement of scrapes, of a real broker."""

import socket
from functools import partial

import pytest
import trio

from ottla.bench.requests import RequestLatency
from ottla.bench.scrape import Prober, run_scrapes
from ottla.client.testing import import_cluster, open_test_cluster
from ottla.model.settings.endpoints import parse_bootstrap

import_cluster()


async def test_a_scrape_is_measured_plain_and_packed() -> None:
    settings = {"metrics.prometheus.port": "0", "metrics.prometheus.host": "127.0.0.1"}
    async with open_test_cluster(settings=settings) as cluster:
        (broker,) = cluster.brokers.values()
        figures = await trio.to_thread.run_sync(
            partial(
                run_scrapes,
                parse_bootstrap(cluster.bootstrap)[0],
                ("127.0.0.1", broker.metrics_port),
                rounds=2,
                progress=lambda _: None,
            )
        )

    assert figures["rows"] > 100
    assert 0 < figures["gzip_bytes"] < figures["bytes"]
    assert figures["plain_ms"] > 0
    assert figures["longest_wait_calm_ms"] > 0


def test_a_wait_counts_where_it_overlaps() -> None:
    prober = object.__new__(Prober)
    prober.waited = [RequestLatency(1.0, 0.5), RequestLatency(2.0, 0.001), RequestLatency(3.0, 0.9)]

    assert prober.longest_ms(1.2, 2.5) == 500
    assert prober.longest_ms(2.0, 2.5) == 1
    assert prober.longest_ms(5, 6) == 0


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        port = unheard.getsockname()[1]
        with pytest.raises(ConnectionError, match=rf"^127\.0\.0\.1:{port} cannot be reached: "):
            Prober(("127.0.0.1", port))
