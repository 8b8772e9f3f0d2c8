"""docs/client-testing.md: its programs work as they are pasted."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "client-testing.md"
CONFTEST, TEST, FAULTS, PROGRAM = re.findall(
    r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL
)


def test_the_plugin_alone_gives_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ntrio_mode = true\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_page.py").write_text(TEST)
    (tmp_path / "test_faults.py").write_text(FAULTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_the_program_prints_three_brokers(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert len(done.stdout.split(",")) == 3
