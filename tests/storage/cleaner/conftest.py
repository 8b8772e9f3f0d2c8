"""Both implementations of the work per record: with numpy, and without it."""

import os
from pathlib import Path

import pytest

from ottla.storage.cleaner import record_forms

HIDE_NUMPY = "import sys\nsys.modules['numpy'] = None\n"


@pytest.fixture(params=["arrays", "plain"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The form in which logs are cleaned, here and in worker processes."""
    if request.param == "plain":
        monkeypatch.setattr(record_forms, "find_spec", lambda name: None)
        hiding = tmp_path / "without-numpy"
        hiding.mkdir()
        (hiding / "sitecustomize.py").write_text(HIDE_NUMPY)
        paths = [str(hiding), *filter(None, [os.environ.get("PYTHONPATH")])]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return str(request.param)
