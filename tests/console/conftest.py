"""Patience for tests of pages: the time limits of pages are for people who wait."""

import pytest

PATIENCE_S = 60.0
LIMITS = (
    "console.partition_offsets_driver.OFFSETS_S",
    "console.records.record_reads_driver.SCAN_S",
    "console.records.schema_formats_driver.SCHEMAS_S",
    "console.views.brokers.RATES_S",
    "console.views.brokers.SETTINGS_S",
    "console.views.overview.CHANGES_S",
    "console.views.overview.FACT_S",
    "console.views.overview.FIRST_S",
    "console.views.overview.RATES_S",
    "console.views.topics.SIZES_S",
    "insight.facts.facts_driver.FACT_TIMEOUT_S",
    "insight.facts.survey_driver.NODE_TIMEOUT_S",
    "insight.facts.survey_driver.QUORUM_TIMEOUT_S",
    "insight.facts.traffic_driver.BROKER_TIMEOUT_S",
)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengthen the time limits of pages, so that a slow machine fails no test."""
    for name in LIMITS:
        monkeypatch.setattr(f"ottla.{name}", PATIENCE_S)
