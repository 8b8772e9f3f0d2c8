"""A real cluster, a process of `ottla console` and a real chromium for the tests of this folder.

They run with OTTLA_BROWSER=full alone, and need playwright (`pip install playwright`) and the
program `chromium`, or one that OTTLA_CHROMIUM names. The cluster has one controller and one broker.
OTTLA_BROWSER_CLUSTER=3+3 selects three controllers and three brokers under load, of which the walk
kills a broker and starts it again. OTTLA_BROWSER_CLUSTER=HOST:PORT names a running cluster in place
of one of their own. Its authorizer must let User:ANONYMOUS do everything.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.cluster.conftest import Load, Processes, make_processes
from tests.console.browser.busy_data import REPORT, fill
from tests.console.browser.watched_page import HEIGHT, WIDTH, WatchedPage

CHROMIUM = os.environ.get("OTTLA_CHROMIUM") or shutil.which("chromium")
OTTLA = (sys.executable, "-m", "ottla.cli")
CLUSTER = os.environ.get("OTTLA_BROWSER_CLUSTER", "1+1")
IS_OWN = re.fullmatch(r"(\d)\+(\d)", CLUSTER)
SETTINGS: dict[str, Any] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "remote.log.storage.system.enable": "true",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "rlmm.config.remote.log.metadata.topic.min.isr": "1",
    "remote.log.manager.task.interval.ms": "500",
    "remote.log.manager.copy.max.bytes.per.second": "100000000",
    "log.retention.check.interval.ms": "500",
    # A test writes a transaction that no coordinator knows.
    "transaction.partition.verification.enable": "false",
}
WAIT_MS = 20_000
LOAD_TOPIC, LOAD_RATE = "steady", 200
READERS = (("--group", "readers"), ("--share", "sharers"))

OpenTab = Callable[..., WatchedPage]


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes | None]:
    """Provide the processes of the cluster, or None if a running cluster was named."""
    if os.environ.get("OTTLA_BROWSER") != "full":
        pytest.skip("minutes in a real browser: OTTLA_BROWSER=full")
    pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    if CHROMIUM is None:
        pytest.skip("there is no program chromium; OTTLA_CHROMIUM names another one")
    if IS_OWN is None:
        yield None
        return
    pytest.importorskip("obstore", reason="pip install -e '.[tiered]'")
    store: dict[str, Any] = {"remote.log.storage.uri": f"file://{tmp_path_factory.mktemp('store')}"}
    own = make_processes(
        tmp_path_factory.mktemp("cluster"),
        controllers=int(IS_OWN[1]),
        brokers=int(IS_OWN[2]),
        is_secure=False,
        **SETTINGS,
        **store,
    )
    try:
        own.start()
        yield own
    finally:
        own.stop_all()
    for log in own.plan.directory.glob("*.log"):
        assert "Traceback" not in log.read_text(), log


@pytest.fixture(scope="session")
def bootstrap(processes: Processes | None) -> Iterator[str]:
    """Provide the bootstrap address of a cluster with something on each screen. A cluster of
    several brokers is under load."""
    found = CLUSTER if processes is None else processes.bootstrap
    fill(found)
    with ExitStack() as stack:
        if processes is not None and len(processes.named("broker")) > 1:
            stack.enter_context(load(processes))
        yield found


@contextmanager
def load(processes: Processes) -> Iterator[None]:
    """Write and read records of a topic in processes of their own."""
    processes.ottla("topic", "create", LOAD_TOPIC, "--partitions", "3")
    writer = Load(processes, LOAD_TOPIC, rate=LOAD_RATE)
    readers = []
    for kind in READERS:
        command = [*OTTLA, "consume", LOAD_TOPIC, *kind, "--bootstrap-server", processes.bootstrap]
        readers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
    try:
        yield
        assert all(reader.poll() is None for reader in readers), "a reader has ended"
        assert writer.stop().is_clean
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()
        writer.give_up()


@contextmanager
def open_console(bootstrap: str, *words: str) -> Iterator[str]:
    """Start `ottla console` over a cluster, and yield the address that it prints. Its log must be
    without a traceback."""
    command = [*OTTLA, "console", "--bootstrap-server", bootstrap, "--port", "0", *words]
    lines: list[str] = []
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        log = process.stderr
        assert log is not None
        reader = Thread(target=lambda: lines.extend(log))
        try:
            first = log.readline()
            address = re.search(r"http://\S+", first)
            assert address, first
            reader.start()
            yield address[0].rstrip("/")
        finally:
            process.terminate()
            reader.join()
    assert not any("Traceback" in line for line in lines), "".join(lines[-60:])


@pytest.fixture(scope="session")
def console(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide the address of a console over the cluster."""
    folder = tmp_path_factory.mktemp("console")
    report = folder / "reports" / REPORT
    report.mkdir(parents=True)
    (report / "report.md").write_text("# A run\n\nvalid\n")
    with open_console(bootstrap, "--reports", str(report.parent)) as address:
        yield address


@pytest.fixture(scope="session")
def chromium(processes: Processes | None) -> Iterator[Any]:
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
