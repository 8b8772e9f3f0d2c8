"""Settings of all tests of worlds: expected failures write no files into the working directory."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing.world.failure_files import FOLDER_VARIABLE


@pytest.fixture(autouse=True)
def failure_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write files of failing runs into the test's own folder."""
    folder = tmp_path / "failures"
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    return folder


@pytest.fixture(autouse=True)
def frozen_again() -> Iterator[None]:
    """Freeze the modules and tests again, which each run of a world unfreezes at its end: the
    collections of later runs would look at all of them."""
    yield
    gc.collect(1)
    gc.freeze()
