"""Settings of all tests.  Speed is measured in `bench/` and never asserted in a test.

Hypothesis therefore fails no test for a slow machine or for slow data, and tests that only compute,
or wait for a Spark that computes, have a longer timeout.  Hypothesis draws a quarter of the
examples of its own default, other ones in each run; all of them with OTTLA_FAULTS=full.  Tests of
`THOROUGH` are skipped unless OTTLA_TESTS=full.

Plain `pytest` is a short form: it leaves out the tests marked `long`, which are those of `LONG` and
all that are marked `cluster`.  The short form needs no Java, no root and no compiler.  A command
line that names a path, a marker or a keyword runs everything it names: `pytest tests` is all tests,
`pytest -m long` the rest.
"""

import gc
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from importlib.util import cache_from_source
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
import trustme
from hypothesis import HealthCheck, settings

from ottla.client.network.login import LOGIN
from ottla.client.network.tls import TLS
from ottla.model.compiled import installed_form

LONG = (
    "bench",
    "broker/authentication",
    "broker/authorization/test_every_api.py",
    "broker/error_tables",
    "broker/groups/test_target_job.py",
    "broker/metrics",
    "broker/transactions/test_transactional_clients.py",
    "cli/cluster",
    "client/pages/test_coming_pages.py",
    "client/pages/test_delivery_page.py",
    "client/pages/test_testing_page.py",
    "cluster",
    "jepsen",
    "journeys",
    "pipeline",
    "storage/cleaner/test_clean_model.py",
    "test_packaging.py",
)
"""Folders and files of tests that plain `pytest` leaves out: minutes of computing, or they need a
Java, root, a compiler or a package index."""

THOROUGH = (
    "bench/test_clients.py::test_a_client_does_its_work_and_says_what_it_took[",
    "bench/test_topics.py::test_a_run_leaves_no_topic_behind[clients]",
    "cluster/tier/test_store_faults.py",
    "pipeline/doctor/test_doctor_facts.py::test_the_command_looks_tries_a_query",
    "pipeline/export/test_kills.py::test_twenty_kills",
    "pipeline/rollup/test_stream.py::test_a_window_is_reported_once_it_is_over",
    "pipeline/tables/test_table_archive.py::"
    "test_each_record_is_in_the_table_once_over_deaths_rollbacks_and_exports[delta]",
    "pipeline/tables/test_table_archive.py::"
    "test_json_values_and_transforms_are_columns_of_the_table[delta]",
    "pipeline/test_commands.py::test_ctrl_c_ends_an_archive_after_its_batch",
    "pipeline/test_plain_program.py",
)
"""Beginnings of the names of tests that compute for half a minute or more. Each has a shorter test
of the same subject. OTTLA_TESTS=full runs them."""
IS_THOROUGH = os.environ.get("OTTLA_TESTS") == "full"

LONG_PREFIXES = tuple(f"{place}/" for place in LONG)

HAS_LONG_TESTS = re.compile(r"\bmark\.(?:cluster|long)\b")
"""Text of the files with a test that is marked by itself."""

PROCESSES_MAX = 4
"""Largest number of processes of a plain run: each of them imports all test files."""
IS_PLAIN, HAS_BYTECODE = "is_plain", "has_bytecode"
COMPILING_TIMEOUT_S = 300
FIELDS_OF_REPORT = {"nodeid", "location", "keywords", "outcome", "longrepr", "when"}
FIELDS_OF_REPORT |= {"user_properties", "sections", "duration", "start", "stop"}
SHOWN_S = 0.1
"""Least duration of a passed setup or teardown that a process of a run reports, in seconds."""

COMPUTING = ("pipeline", "jepsen")
"""Folders of tests that `.ci/run` runs at a low priority, beside other work."""
COMPUTING_TIMEOUT_S = 1_200

# A console beside each local cluster would cost each test half a second of CPU.
os.environ.setdefault("OTTLA_CONSOLE", "off")

# readline leaves the size of its terminal to the processes of pytest-xdist, which would cut tables.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

# Imports create little garbage, but millions of objects, which each collection would look at: it is
# enabled when all tests are known.
gc.disable()

# Tests that start a JVM or a node fork beside gRPC's threads: the child must get to its exec.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

settings.register_profile(
    "unhurried",
    deadline=None,
    max_examples=100 if os.environ.get("OTTLA_FAULTS") == "full" else 25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unhurried")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Return True for files without a test to run, which need not be imported: those of `LONG` in a
    plain run, and with `-m long` those that have only short tests."""
    here = Path(__file__).parent
    if not collection_path.is_relative_to(here) or collection_path == here:
        return None
    place = collection_path.relative_to(here).as_posix()
    is_long = f"{place}/".startswith(LONG_PREFIXES)
    if is_plain(config):
        return is_long or None
    if config.option.markexpr != "long" or collection_path.suffix != ".py":
        return None
    return not (is_long or HAS_LONG_TESTS.search(collection_path.read_text())) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the long tests, and leave them out of a plain run.

    Give tests that only compute a longer timeout than the default, unless they have their own.
    Skip tests that replace parts of compiled modules: compiled code calls the parts directly.
    """
    here = Path(__file__).parent
    is_compiled = installed_form() == "compiled"
    for item in items:
        place = item.path.relative_to(here).as_posix() if item.path.is_relative_to(here) else ""
        if item.get_closest_marker("cluster") or f"{place}/".startswith(LONG_PREFIXES):
            item.add_marker(pytest.mark.long)
        replacing = item.get_closest_marker("interpreted_only")
        if replacing is not None and is_compiled:
            reason = f"not on the compiled form: {replacing.args[0]}"
            item.add_marker(pytest.mark.skip(reason=reason))
        if not IS_THOROUGH and item.nodeid.removeprefix("tests/").startswith(THOROUGH):
            item.add_marker(pytest.mark.skip(reason="OTTLA_TESTS=full; it takes a minute"))
        if place.startswith(COMPUTING) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(COMPUTING_TIMEOUT_S))
    if is_plain(config):
        config.hook.pytest_deselected(
            items=[item for item in items if item.get_closest_marker("long")]
        )
        items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Divide the files of a plain run among processes, one for each core, unless `-n` says
    otherwise."""
    options = config.option
    is_divided = hasattr(config, "workerinput") or getattr(options, "numprocesses", 0) is not None
    if not is_divided and is_plain(config) and not (options.usepdb or options.collectonly):
        options.numprocesses = min(PROCESSES_MAX, len(os.sched_getaffinity(0)))
        options.dist = "loadfile"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the kind of the run to a process of pytest-xdist, whose command line has all paths."""
    node.workerinput[IS_PLAIN] = is_plain(node.config)
    node.workerinput[HAS_BYTECODE] = has_bytecode()


@pytest.hookimpl(tryfirst=True)
def pytest_report_to_serializable(
    config: pytest.Config, report: pytest.CollectReport | pytest.TestReport
) -> dict[str, Any] | None:
    """Return the few fields of a passed step of a test that its report needs. A process of
    pytest-xdist sends it; others are serialized by pytest."""
    if not (isinstance(report, pytest.TestReport) and report.passed) or report.sections:
        return None
    if set(vars(report)) - FIELDS_OF_REPORT or report.user_properties or report.longrepr:
        return None
    return {**vars(report), "keywords": {}, "$report_type": "TestReport"}


def pytest_sessionstart(session: pytest.Session) -> None:
    """Send less from a process of pytest-xdist: the messages about the progress of each test were a
    third of the CPU of a short test."""
    for plugin in session.config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":
            cast(Any, plugin).sendevent = partial(send_needed, plugin.sendevent)


def send_needed(send: Callable[..., None], name: str, **values: Any) -> None:
    """Send a message of a process of pytest-xdist, unless it only says that a test begins or ends,
    or that its setup or teardown has passed fast."""
    if name in ("logstart", "logfinish"):
        return
    if name == "testreport":
        data = values["data"]
        is_passed = data["outcome"] == "passed" and not data["sections"]
        if is_passed and data["when"] != "call" and data["duration"] < SHOWN_S:
            return
    send(name, **values)


@lru_cache
def has_bytecode(tests: Path = Path(__file__).parent) -> bool:
    """Return whether a plain run has compiled the tests of a folder before. No other leg of
    `.ci/run` compiles `test_tidy.py`."""
    compiled = Path(cache_from_source(str(tests / "test_tidy.py"))).parent
    return any(compiled.glob("test_tidy.*"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Let the first process of a run compile all modules if none are compiled yet.

    Processes that import the same files at the same time would each compile all of them, which
    costs a minute of CPU a process.
    """
    passed = getattr(session.config, "workerinput", {})
    if passed.get(HAS_BYTECODE, True):
        return (yield)
    collected = Path(session.config.option.basetemp).parent / "collected"
    if passed["workerid"] == "gw0":
        try:
            return (yield)
        finally:
            collected.touch()
    ends_at = time.monotonic() + COMPILING_TIMEOUT_S
    while not collected.exists() and time.monotonic() < ends_at:
        time.sleep(0.1)
    return (yield)


def is_plain(config: pytest.Config) -> bool:
    """Return whether the command line names no path, no marker and no keyword."""
    passed: dict[str, bool] = getattr(config, "workerinput", {})
    if IS_PLAIN in passed:
        return passed[IS_PLAIN]
    names_a_path = config.args_source is pytest.Config.ArgsSource.ARGS
    return not (names_a_path or config.option.markexpr or config.option.keyword)


def pytest_collection_finish() -> None:
    """Leave the tests themselves and all modules out of every later collection of garbage, and
    collect less often than Python does by default."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 10, 10)
    gc.enable()


@pytest.fixture(autouse=True)
def logins_end_with_their_test() -> Iterator[None]:
    """Reset the login of the test: the brokers of the next one do not know its user."""
    login, encryption = LOGIN.get(), TLS.get()
    yield
    LOGIN.set(login)
    TLS.set(encryption)


class CertificateAuthority:
    """A CA of tests: makes PEM files as a node, a client or an operator has them."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._ca = trustme.CA(organization_name=name)
        self._directory = directory
        self._numbers = count(1)
        self.file = directory / f"{name}.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def issue(
        self,
        *hosts: str,
        common_name: str | None = None,
        unit: str | None = None,
        starts_in: timedelta = -timedelta(days=1),
        ends_in: timedelta = timedelta(days=30),
    ) -> Path:
        """Return a new file with a private key and a certificate for hosts."""
        now = datetime.now(UTC)
        leaf = self._ca.issue_cert(
            *(hosts or ("localhost", "127.0.0.1")),
            common_name=common_name,
            organization_unit_name=unit or "tests",
            not_before=now + starts_in,
            not_after=now + ends_in,
        )
        path = self._directory / f"{self.file.stem}-{next(self._numbers)}.pem"
        self._write(path, leaf.private_key_and_cert_chain_pem.bytes())
        return path

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        path.touch(mode=0o600)
        path.write_bytes(data)


@pytest.fixture(scope="session")
def new_authority(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], CertificateAuthority]:
    """Return a function that creates another CA, in a directory of its own."""
    return lambda name: CertificateAuthority(tmp_path_factory.mktemp("authority"), name)


@pytest.fixture(scope="session")
def authority(new_authority: Callable[[str], CertificateAuthority]) -> CertificateAuthority:
    """Return the CA that the tests of a session share."""
    return new_authority("ca")


@pytest.fixture(autouse=True)
def restored_log_levels() -> Iterator[None]:
    """Restore the levels of Ottla's loggers, which clients of brokers may have changed.

    `setLevel` empties the caches of all loggers, which would be most of the time of a fast test:
    only levels that changed are set.
    """
    loggers = loggers_of_ottla(counts_of_loggers())
    levels = [logger.level for logger in loggers]
    yield
    now = loggers_of_ottla(counts_of_loggers())
    if now is loggers and [logger.level for logger in now] == levels:
        return
    before = dict(zip(loggers, levels, strict=True))
    for logger in now:
        level = before.get(logger, logging.NOTSET)
        if logger.level != level:
            logger.setLevel(level)


def counts_of_loggers() -> tuple[int, int]:
    """Return the number of names of loggers, and of those that are only parents of others."""
    kinds = list(map(type, logging.root.manager.loggerDict.values()))
    return len(kinds), kinds.count(logging.PlaceHolder)


@lru_cache(maxsize=1)
def loggers_of_ottla(counts: tuple[int, int]) -> list[logging.Logger]:
    """Return the loggers of Ottla's modules. `counts` are those of all loggers: as long as they
    stay the same, there is no new one."""
    loggers = logging.root.manager.loggerDict
    return [
        logger
        for name, logger in list(loggers.items())
        if name.startswith("ottla") and isinstance(logger, logging.Logger)
    ]
