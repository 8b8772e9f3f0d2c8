"""A real cluster, a process of `ottla console` and a real chromium for the tests of this folder.

They run with OTTLA_BROWSER=full alone, and need playwright (`pip install playwright`) and the
program `chromium`, or one that OTTLA_CHROMIUM names. OTTLA_BROWSER_CLUSTER=HOST:PORT names a
running cluster in place of one of their own. Its authorizer must let User:ANONYMOUS do everything.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.console.browser.busy_data import REPORT, fill
from tests.console.browser.watched_page import HEIGHT, WIDTH, WatchedPage

CHROMIUM = os.environ.get("OTTLA_CHROMIUM") or shutil.which("chromium")
OTTLA = (sys.executable, "-m", "ottla.cli")
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
WAIT_MS = 20_000

OpenTab = Callable[..., WatchedPage]


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide the bootstrap address of a cluster of one broker, with something on each screen."""
    if os.environ.get("OTTLA_BROWSER") != "full":
        pytest.skip("minutes in a real browser: OTTLA_BROWSER=full")
    pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    if CHROMIUM is None:
        pytest.skip("there is no program chromium; OTTLA_CHROMIUM names another one")
    own = os.environ.get("OTTLA_BROWSER_CLUSTER")
    if own is not None:
        fill(own)
        yield own
        return
    folder = str(tmp_path_factory.mktemp("cluster") / "data")
    up = [*OTTLA, "up", "--dir", folder, "--port", "0", "--brokers", "1", "--controllers", "1"]
    up += ["--detach", "--no-console"]
    for key, value in SETTINGS.items():
        up += ["--set", f"{key}={value}"]
    printed = subprocess.run(up, check=True, capture_output=True, text=True).stdout
    try:
        found = re.search(r"bootstrap\.servers=(\S+?)\.?\s", printed)
        assert found, printed
        fill(found[1])
        yield found[1]
    finally:
        subprocess.run([*OTTLA, "down", "--dir", folder], check=True, capture_output=True)


@pytest.fixture(scope="session")
def console(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide the address of a console over the cluster. Its log must be without a traceback."""
    folder = tmp_path_factory.mktemp("console")
    report = folder / "reports" / REPORT
    report.mkdir(parents=True)
    (report / "report.md").write_text("# A run\n\nvalid\n")
    command = [*OTTLA, "console", "--bootstrap-server", bootstrap]
    command += ["--port", "0", "--reports", str(report.parent)]
    lines: list[str] = []
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        log = process.stderr
        assert log is not None
        reader = Thread(target=lambda: lines.extend(log))
        try:
            address = re.search(r"http://\S+", log.readline())
            assert address
            reader.start()
            yield address[0].rstrip("/")
        finally:
            process.terminate()
            reader.join()
    assert not any("Traceback" in line for line in lines), "".join(lines[-60:])


@pytest.fixture(scope="session")
def chromium(console: str) -> Iterator[Any]:
    """Provide a running chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_tab(console: str, chromium: Any) -> Iterator[OpenTab]:
    """Provide a function that opens a tab with storage of its own. At the end of the test, no tab
    may have shown a problem."""
    tabs: list[WatchedPage] = []
    contexts = []

    def open_one(*, width: int = WIDTH, **options: Any) -> WatchedPage:
        context = chromium.new_context(viewport={"width": width, "height": HEIGHT}, **options)
        context.set_default_timeout(WAIT_MS)
        contexts.append(context)
        tabs.append(WatchedPage(context.new_page(), console))
        return tabs[-1]

    yield open_one
    problems = [problem for tab in tabs for problem in tab.problems]
    for context in contexts:
        context.close()
    assert not problems, problems


@pytest.fixture
def axe_script() -> str:
    """Provide the source of axe-core, from the file that OTTLA_AXE names."""
    path = os.environ.get("OTTLA_AXE")
    if path is None:
        pytest.skip("OTTLA_AXE=FILE names axe.min.js of axe-core 4.14.1")
    return Path(path).read_text()
