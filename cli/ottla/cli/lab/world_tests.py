"""Replays of failing tests that use `ottla.testing.world`, for `ottla world replay`."""

import json
import subprocess
import sys
from pathlib import Path

from ottla.model.errors import CorruptDataError

OPTIONS_MODULE = "ottla.testing.world_options"


def named_test(path: Path) -> str | None:
    """Return the id of the test whose failing run is stored in a file, or None if the file does not
    contain a failing run.

    Raises CorruptDataError if the file does not name its test.
    """
    try:
        values = json.loads(path.read_text())
    except ValueError:
        return None
    if not isinstance(values, dict) or "faults" not in values or "plan" not in values:
        return None
    test = values.get("test")
    if not isinstance(test, str) or not test or test.startswith("-"):
        raise CorruptDataError(
            f"{path.name}: names no test of pytest; repeat it with the variable OTTLA_WORLD_REPLAY"
        )
    return test


def replay(test: str, path: Path) -> int:
    """Run a test with the cluster and the faults in a file, and return pytest's exit code."""
    command = [sys.executable, "-m", "pytest", "-p", OPTIONS_MODULE, test]
    return subprocess.run([*command, "--world-replay", str(path)], check=False).returncode
