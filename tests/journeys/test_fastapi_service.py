"""From an empty directory to the first green test of a FastAPI service, as the page says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

WHEEL = "./ottla-0.2.0-py3-none-any.whl"
"""File of the last release, as the page names it."""
HEADING = "A FastAPI service, from nothing"


def test_a_service_has_its_first_green_test(
    tmp_path: Path, checkout: Path, open_terminal: Callable[..., Any], page: Any
) -> None:
    testing = page("docs/client-testing.md")
    service = tmp_path / "service"
    service.mkdir()
    (service / "app.py").write_text(testing.program("FastAPI(lifespan"))
    (service / "test_app.py").write_text(testing.program("def test_an_order"))
    (service / "conftest.py").write_text(testing.program('pytest_plugins = ["ottla.testing"]'))
    terminal = open_terminal(service, env={"PYTHONPATH": "", "PYTEST_ADDOPTS": ""})

    *_, printed = terminal.replay(
        testing, HEADING, instead=lambda command: command.replace(WHEEL, str(checkout))
    )

    assert "1 passed" in printed
    (service / "test_outage.py").write_text(testing.program("def test_a_lost_cluster"))
    assert "2 passed" in terminal.type("python -m pytest -q")
