"""The configuration files of `deploy/` for the collector and Prometheus are valid.

The tests check that they are YAML, are consistent and have documented keys only. The programs
themselves check them where `promtool` is installed.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla.model.settings.telemetry.exporters import DEFAULT_PORTS
from ottla.telemetry.clients.client_series import SERIES_MAX

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
COLLECTOR = DEPLOY / "otel-collector" / "config.yaml"
PROMETHEUS = DEPLOY / "prometheus" / "prometheus.yml"
COMPOSE = DEPLOY / "containers" / "compose.yaml"
YAMLS = sorted([*DEPLOY.rglob("*.yaml"), *DEPLOY.rglob("*.yml")])
PROMTOOL = shutil.which("promtool")

KEYS_OF_COLLECTOR = {
    ("receivers", "otlp"): {"protocols"},
    ("processors", "memory_limiter"): {
        "check_interval",
        "limit_mib",
        "spike_limit_mib",
        "limit_percentage",
        "spike_limit_percentage",
    },
    ("processors", "deltatocumulative"): {"max_stale", "max_streams"},
    ("processors", "batch"): {"timeout", "send_batch_size", "send_batch_max_size"},
    ("exporters", "prometheus"): {
        "endpoint",
        "namespace",
        "const_labels",
        "send_timestamps",
        "metric_expiration",
        "resource_to_telemetry_conversion",
        "enable_open_metrics",
        "add_metric_suffixes",
    },
}
"""Metrics listed in each component's own README."""
KEYS_OF_SCRAPE = {
    "job_name",
    "scrape_interval",
    "scrape_timeout",
    "metrics_path",
    "scheme",
    "static_configs",
    "relabel_configs",
    "metric_relabel_configs",
    "sample_limit",
    "body_size_limit",
}
DURATION = re.compile(r"[0-9]+(ms|s|m|h)")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", YAMLS, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_a_file_is_yaml(path: Path) -> None:
    assert all(isinstance(one, dict) for one in yaml.safe_load_all(path.read_text()))


def test_the_collector_has_only_keys_that_its_components_know() -> None:
    config = read(COLLECTOR)
    assert config.keys() == {"receivers", "processors", "exporters", "service"}
    for kind in ("receivers", "processors", "exporters"):
        for name, settings in config[kind].items():
            assert settings.keys() <= KEYS_OF_COLLECTOR[kind, name], name
    assert config["receivers"]["otlp"]["protocols"].keys() == {"grpc", "http"}
    durations = [
        config["processors"]["memory_limiter"]["check_interval"],
        config["processors"]["deltatocumulative"]["max_stale"],
        config["processors"]["batch"]["timeout"],
        config["exporters"]["prometheus"]["metric_expiration"],
    ]
    assert all(DURATION.fullmatch(text) for text in durations)


def test_the_collector_uses_what_it_names_and_adds_up_before_prometheus_sees_it() -> None:
    config = read(COLLECTOR)
    (pipeline,) = config["service"]["pipelines"].values()
    for kind in ("receivers", "processors", "exporters"):
        assert sorted(pipeline[kind]) == sorted(config[kind])
    # The limiter stands first, so that it can refuse; nothing joins before the sums are there.
    assert pipeline["processors"] == ["memory_limiter", "deltatocumulative", "batch"]
    assert config["processors"]["deltatocumulative"]["max_streams"] >= SERIES_MAX
    conversion = config["exporters"]["prometheus"]["resource_to_telemetry_conversion"]
    assert conversion == {"enabled": True}, "else the pushing client is unknown"


def test_the_collector_listens_where_nodes_send_by_default() -> None:
    protocols = read(COLLECTOR)["receivers"]["otlp"]["protocols"]
    ports = {
        name: int(settings["endpoint"].rpartition(":")[2]) for name, settings in protocols.items()
    }
    assert ports == {"grpc": DEFAULT_PORTS["grpc"], "http": DEFAULT_PORTS["http"]}


def test_prometheus_scrapes_nodes_where_the_docs_let_them_listen() -> None:
    config = read(PROMETHEUS)
    assert config.keys() == {"global", "scrape_configs"}
    (job,) = config["scrape_configs"]
    assert job.keys() <= KEYS_OF_SCRAPE
    assert job.get("metrics_path", "/metrics") == "/metrics"
    roles = {each["labels"]["role"]: each["targets"] for each in job["static_configs"]}
    assert roles.keys() == {"broker", "controller"}
    docs = (ROOT / "docs" / "telemetry.md").read_text()
    (port,) = {target.rpartition(":")[2] for target in roles["broker"]}
    assert f"metrics.prometheus.port={port}" in docs


def test_the_containers_hold_together() -> None:
    config = read(COMPOSE)
    services = config["services"]
    for name, service in services.items():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in config["volumes"] or (COMPOSE.parent / source).exists(), name
        assert set(service.get("depends_on", ())) <= services.keys()
        own = [text for text in service.get("command", ()) if text.startswith("--set=")]
        settings = dict(text.removeprefix("--set=").split("=", 1) for text in own)
        if name.startswith("broker-"):
            assert settings["node.id"] == name.removeprefix("broker-")
            (published,) = service["ports"]
            inside = published.rpartition(":")[2]
            assert f"OUTSIDE://localhost:{inside}" in settings["advertised.listeners"]
            assert settings["listeners"].endswith(f"OUTSIDE://:{inside}")


@pytest.mark.skipif(PROMTOOL is None, reason="LOUD: Prometheus has NOT read its configuration")
def test_prometheus_takes_its_configuration() -> None:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, "check", "config", str(PROMETHEUS)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
