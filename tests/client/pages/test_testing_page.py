"""docs/client-testing.md: its programs work as they are pasted.

The FastAPI service is typed by tests/journeys/test_fastapi_service.py, which installs FastAPI.
"""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "client-testing.md"
(
    BLOCK,
    CONFTEST,
    SYNC_TEST,
    ASYNC_TEST,
    OPTIONS,
    _FASTAPI_APP,
    _FASTAPI_TEST,
    _OUTAGE_TEST,
    TRIO_CONFTEST,
    TRIO_TEST,
    FAULTS,
    QUEUES,
    PROGRAM,
) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def passed_count(directory: Path, settings: str, files: dict[str, str]) -> int:
    """Run pytest with these settings and files; return the number of tests, all of which passed."""
    (directory / "pytest.ini").write_text(f"[pytest]\n{settings}\n")
    for name, text in files.items():
        (directory / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(\d+) passed", done.stdout)
    assert found is not None, done.stdout
    return int(found[1])


def test_the_first_program_prints_an_address() -> None:
    command = [sys.executable, "-c", BLOCK]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", done.stdout)


def test_the_plugin_gives_the_fixtures_of_synchronous_and_asyncio_tests(tmp_path: Path) -> None:
    files = {
        "conftest.py": CONFTEST + OPTIONS,
        "test_sync.py": SYNC_TEST,
        "test_async.py": ASYNC_TEST,
    }

    assert passed_count(tmp_path, "asyncio_mode = auto", files) == 2


def test_the_trio_plugin_alone_gives_the_fixture(tmp_path: Path) -> None:
    files = {"conftest.py": TRIO_CONFTEST, "test_page.py": TRIO_TEST, "test_faults.py": FAULTS}

    assert passed_count(tmp_path, "trio_mode = true", files) == 3


def test_the_tests_of_a_queue_advance_locks_delays_and_back_offs(tmp_path: Path) -> None:
    files = {"conftest.py": TRIO_CONFTEST, "test_queues.py": QUEUES}

    assert passed_count(tmp_path, "trio_mode = true", files) == 2


def test_the_program_prints_three_brokers(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert len(done.stdout.split(",")) == 3
