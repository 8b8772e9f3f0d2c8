"""The version that programs print is the installed one."""

import tomllib
from importlib.metadata import version
from pathlib import Path

from ottla.model.version import VERSION


def test_the_constant_is_the_projects_version() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
    assert version("ottla") == VERSION
