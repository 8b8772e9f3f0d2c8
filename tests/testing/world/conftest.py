"""Settings of all tests of worlds: expected failures write no files into the working directory."""

from pathlib import Path

import pytest

from ottla.testing.world.failure_files import FOLDER_VARIABLE


@pytest.fixture(autouse=True)
def failure_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write files of failing runs into the test's own folder."""
    folder = tmp_path / "failures"
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    return folder
