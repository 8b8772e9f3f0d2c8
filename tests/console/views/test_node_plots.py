"""Plots of the nodes' metrics."""

import pytest

from ottla.client.admin import open_admin
from ottla.client.producer import open_producer
from ottla.client.testing import open_test_cluster
from ottla.console.history.metric_history import MetricHistory
from ottla.console.views.node_plots import LINES_MAX, NodePlot, plot_of
from tests.console.console_fixture import NOW_MS, open_browser

PAGE = "/metrics-of-nodes/plots"


def test_a_plot_has_the_wall_clock_and_the_highest_brokers() -> None:
    history = MetricHistory()
    history.add(5.0, {broker: {"ms": 1_000.0 * broker} for broker in range(1, 21)})
    history.add(15.0, {broker: {"ms": 1_000.0 * broker} for broker in range(1, 21)})
    plot = plot_of(NodePlot("Pause", "seconds", "ms", False, 1e-3), history, NOW_MS, 16.0)
    assert plot.times_ms == (NOW_MS - 11_000, NOW_MS - 1_000)
    assert plot.title == f"Pause: the {LINES_MAX} highest of 20 brokers"
    assert plot.series[0] == ("broker 13", (13.0, 13.0))
    assert plot.series[-1] == ("broker 20", (20.0, 20.0))


async def test_the_metrics_of_a_cluster_are_plotted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.console.history.rate_history_driver.SAMPLE_S_MIN", 0.0)
    monkeypatch.setattr("ottla.console.history.metric_history.SAMPLE_S_MIN", 0.0)
    async with (
        open_test_cluster() as cluster,
        open_admin(cluster.bootstrap) as admin,
        open_producer(cluster.bootstrap) as producer,
        open_browser(admin) as browser,
    ):
        await admin.create_topic("orders", partition_count=1)
        await browser.get(PAGE)
        await (await producer.send("orders", b"x" * 1_000, partition=0))
        html = await browser.get(PAGE)
        assert html.count('class="plot"') == 10
        assert "broker 1" in html
        assert 'data-live="/live/node-plots"' in html
        html = await browser.get("/metrics-of-nodes/by-name/requests.answered")
        assert "Increase per second" in html
        html = await browser.get("/metrics-of-nodes/by-name/broker.epoch")
        assert "Value" in html
        assert "Increase per second" not in html
        html = await browser.get("/metrics-of-nodes/by-name/%3Cb%3E")
        assert "No broker has reported a metric" in html
        assert "<b>" not in html
        assert "/metrics-of-nodes/by-name/broker.epoch" in await browser.get("/metrics-of-nodes")
