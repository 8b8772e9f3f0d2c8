"""The alerts of `deploy/prometheus/`: nodes have each metric, and a page explains each alert."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
RULES: list[dict[str, Any]] = yaml.safe_load(
    (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text()
)["groups"][0]["rules"]
METRIC = re.compile(r"\b(?:kafka|ottla|process|python)_[a-z0-9_]+")


def metrics() -> set[str]:
    """Return every metric of the reference page, which a test holds to the declarations."""
    page = (ROOT / "docs/reference/metrics.md").read_text()
    return set(re.findall(r"^\| `([a-z0-9_]+)`", page, re.MULTILINE))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_metrics_that_nodes_have(rule: dict[str, Any]) -> None:
    named = set(METRIC.findall(rule["expr"]))
    assert named <= metrics()
    assert named or "up{" in rule["expr"]


def test_every_alert_is_explained() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    assert [one["alert"] for one in RULES] == re.findall(r"^\| (Ottla\w+)", page, re.MULTILINE)


def test_every_page_of_the_documents_is_listed() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or f"]({page.name})" in index, page.name
