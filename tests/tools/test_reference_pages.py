"""The reference pages agree with the declarations."""

from pathlib import Path

import pytest

from ottla.client.testing import ClusterUnderTest
from ottla.client.testing.fixtures import ottla_cluster
from ottla.model.ids import NodeId
from ottla.tools.cli_page import cli_page
from ottla.tools.client_page import reference, undocumented
from ottla.tools.reference_pages import (
    FEATURES_BEGIN,
    compatibility_page,
    metrics_page,
    settings_page,
    with_features,
)

__all__ = ["ottla_cluster"]
ROOT = Path(__file__).parents[2]
STALE = "docs/reference/{} is stale; run 'make docs'"


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("cli.md", cli_page),
        ("compatibility.md", compatibility_page),
        ("settings.md", settings_page),
    ],
)
def test_a_page_shows_what_is_declared(name: str, write: object) -> None:
    assert callable(write)
    assert (ROOT / "docs/reference" / name).read_text() == write(), STALE.format(name)


async def test_the_page_of_metrics_shows_every_family(
    ottla_cluster: ClusterUnderTest,
) -> None:
    written = metrics_page(ottla_cluster.brokers[NodeId(1)].registry)
    assert (ROOT / "docs/reference/metrics.md").read_text() == written, STALE.format("metrics.md")


def test_the_readme_shows_which_features_work() -> None:
    readme = (ROOT / "README.md").read_text()
    assert FEATURES_BEGIN in readme
    assert with_features(readme) == readme, "README.md is stale; run 'make docs'"


@pytest.mark.interpreted_only("reads the sources of classes")
def test_the_page_of_the_client_shows_its_docstrings() -> None:
    page = (ROOT / "docs/reference/client.md").read_text()
    assert page == reference(), STALE.format("client.md")


@pytest.mark.interpreted_only("reads the sources of classes")
def test_every_public_name_and_field_of_the_client_has_a_docstring() -> None:
    assert undocumented() == []
