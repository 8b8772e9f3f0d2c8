"""The dashboards of `deploy/` query only metrics that nodes and clients export."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla.bench.client_metrics.telemetry_payload import payload_of
from ottla.client.testing import ClusterUnderTest
from ottla.client.testing.fixtures import ottla_cluster
from ottla.controller.controller_metrics import empty_controller_registry
from ottla.model.ids import NodeId
from ottla.telemetry.clients.client_labels import LABEL_NAMES
from ottla.telemetry.clients.client_series import legal_name
from ottla.telemetry.clients.otlp import decode, points_of

__all__ = ["ottla_cluster"]

PROMTOOL = shutil.which("promtool")
DASHBOARDS = Path(__file__).parents[3] / "deploy" / "grafana"
NAME = re.compile(r"\b(?:kafka|ottla|process|org_apache_kafka)_[a-z0-9_]+")
OF_JAVA_CLIENTS = {
    "org_apache_kafka_producer_outgoing_byte_total",
    "org_apache_kafka_consumer_fetch_manager_records_lag_max",
}
"""KIP-714 metrics that librdkafka does not push."""
OF_A_NODE = {"instance", "le", "quantile", "request", "error", "topic", "protocol"}


def dashboard(name: str) -> Any:
    return json.loads((DASHBOARDS / f"{name}.json").read_text())


def panels(name: str) -> Iterator[Any]:
    yield from (panel for panel in dashboard(name)["panels"] if panel["type"] != "row")


def expressions(name: str) -> Iterator[str]:
    for panel in panels(name):
        for target in panel["targets"]:
            # One name by a regular expression stands for two that are alike.
            yield target["expr"].replace("(producer|consumer)", "producer")


def asked(name: str) -> set[str]:
    found = {match for text in expressions(name) for match in NAME.findall(text)}
    return {one.removesuffix("_bucket") for one in found}


async def test_nodes_tell_all_that_their_dashboard_asks_for(
    ottla_cluster: ClusterUnderTest,
) -> None:
    of_brokers = ottla_cluster.brokers[NodeId(1)].registry
    exported = {*of_brokers.names(), *empty_controller_registry().names()}
    assert asked("ottla-nodes") - exported == set()
    assert len(asked("ottla-nodes")) > 20


def test_clients_tell_all_that_their_dashboard_asks_for() -> None:
    of_librdkafka = {
        legal_name(point.name) for index in (0, 1) for point in points_of(decode(payload_of(index)))
    }
    assert asked("ottla-clients") - of_librdkafka == OF_JAVA_CLIENTS


@pytest.mark.parametrize(
    ("name", "labels"),
    [("ottla-nodes", OF_A_NODE), ("ottla-clients", {*LABEL_NAMES, "node_id"})],
)
def test_a_dashboard_sums_by_labels_that_exist(name: str, labels: set[str]) -> None:
    for text in expressions(name):
        for by in re.findall(r"by \(([^)]*)\)", text):
            assert set(re.split(r",\s*", by)) <= labels, text


@pytest.mark.parametrize("name", ["ottla-nodes", "ottla-clients"])
def test_no_panel_hides_another(name: str) -> None:
    every = dashboard(name)["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    for one, other in combinations([panel["gridPos"] for panel in every], 2):
        is_beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        is_below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert is_beside or is_below


@pytest.mark.skipif(PROMTOOL is None, reason="LOUD: Prometheus has NOT read the dashboards")
@pytest.mark.parametrize("name", ["ottla-nodes", "ottla-clients"])
def test_prometheus_understands_what_a_dashboard_asks(name: str, tmp_path: Path) -> None:
    assert PROMTOOL is not None
    rules = [
        {"record": f"panel:{number}", "expr": re.sub(r"\$__\w*interval\w*|\$__range", "5m", text)}
        for number, text in enumerate(expressions(name))
    ]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": name, "rules": rules}]}))

    done = subprocess.run(
        [PROMTOOL, "check", "rules", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert f"{len(rules)} rules found" in done.stdout
