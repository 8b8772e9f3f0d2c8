"""Patience for tests of pages: the time limits of pages are for people who wait. Templates are
compiled once for all tests."""

from collections.abc import Iterator
from functools import partial

import jinja2
import pytest
from jinja2.bccache import Bucket

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


class CompiledTemplates(jinja2.BytecodeCache):
    """Code of the templates that a process has compiled. Each app has templates of its own, and to
    compile them is three quarters of the CPU of a test of a page."""

    def __init__(self) -> None:
        self._code: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Load the code of a template, unless its text differs from the compiled one."""
        if bucket.key in self._code:
            bucket.bytecode_from_string(self._code[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep the code of a template."""
        self._code[bucket.key] = bucket.bytecode_to_string()


@pytest.fixture(autouse=True, scope="session")
def compiled_templates() -> Iterator[None]:
    """Share the code of templates among the apps of all tests."""
    environment = partial(jinja2.Environment, bytecode_cache=CompiledTemplates())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jinja2.Environment", environment)
        yield
