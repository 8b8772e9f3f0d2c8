"""One batch of a soak: pytest runs a test with examples of one seed, in this process.

Hypothesis draws the examples, so that the soak uses the fixtures, strategies and shrinking of the
test itself. The module of the test is imported once per process.
"""

import io
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, settings

from ottla.testing.world.failure_files import FOLDER_VARIABLE, REPLAY_VARIABLE
from ottla.testing.world.run import WorldRun

MESSAGE_CHARS_MAX = 20_000
"""Maximum length, in characters, of the text of a failure."""
OPTIONS = (
    *("-q", "-p", "no:cacheprovider", "-p", "no:randomly"),
    # A worker runs pytest many times. The second time, plugins are already imported, of which
    # pytest warns, and a project may treat warnings as errors.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
_NUMBERS = re.compile(r"\d+(\.\d+)?")


class SoakFailure(NamedTuple):
    """Failure of a test that one batch of runs has found."""

    test: str
    """Node id of the test."""
    kind: str
    """Type and first line of the exception, without numbers. Failures with the same cause have the
    same kind."""
    text: str
    """Text of the exception with which the run failed, with its notes."""
    case: dict[str, Any] | None
    """Plan and faults of the last run that failed, as JSON values. None if no run has failed."""


class SoakResult(NamedTuple):
    """Results of one batch of a soak."""

    run_count: int
    """Number of simulated runs, including runs that Hypothesis needed to shrink a failure."""
    virtual_s: float
    """Virtual seconds of all runs of the batch, added up."""
    cpu_s: float
    """CPU seconds of the worker process, including its imports."""
    wall_s: float
    test_count: int
    """Number of tests that pytest ran."""
    failures: list[SoakFailure]
    problem: str
    """Reason why pytest could not run the test. Empty if pytest ran it."""


def run_batch(test: str, seed: int, example_count: int, *, shrinks: bool = True) -> SoakResult:
    """Run a test once with a number of examples. A seed determines the examples that Hypothesis
    draws."""
    return _run([test, f"--hypothesis-seed={seed}"], example_count, shrinks=shrinks)


def run_again(test: str, path: str) -> SoakResult:
    """Repeat a failing run of a test, with its stored plan and faults."""
    with patch.dict(os.environ, {REPLAY_VARIABLE: path}):
        return _run([test], 1, shrinks=False)


def _run(words: list[str], example_count: int, *, shrinks: bool) -> SoakResult:
    plugin = _SoakPlugin(words[0], example_count, shrinks=shrinks)
    output = io.StringIO()
    started, cpu_started = time.monotonic(), time.process_time()
    with (
        patch.dict(os.environ, {FOLDER_VARIABLE: ""}),  # the soak writes files of its own
        plugin.watched_runs(),
        redirect_stdout(output),
        redirect_stderr(output),
    ):
        problem = ""
        try:
            code = pytest.main([*OPTIONS, *words], plugins=[plugin])
        except Exception as error:  # of pytest itself or of a plugin: no batch of this test can run
            code, problem = pytest.ExitCode.OK, f"pytest failed: {error!r}"
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        problem = plugin.problem or _reason(output.getvalue()) or f"pytest ended with {code!r}"
    return SoakResult(
        run_count=plugin.run_count,
        virtual_s=plugin.virtual_s,
        cpu_s=time.process_time() - cpu_started,
        wall_s=time.monotonic() - started,
        test_count=plugin.test_count,
        failures=plugin.failures,
        problem=problem,
    )


class _SoakPlugin:
    """Plugin of pytest that sets the number of examples, and collects runs and failures."""

    def __init__(self, test: str, example_count: int, *, shrinks: bool) -> None:
        self._path = test.partition("::")[0]
        self.run_count = 0
        self.virtual_s = 0.0
        self.test_count = 0
        self.failures: list[SoakFailure] = []
        self.problem = ""
        self._case: dict[str, Any] | None = None
        phases = [Phase.explicit, Phase.generate] + ([Phase.shrink] if shrinks else [])
        self._changes: dict[str, Any] = {
            "max_examples": example_count,
            "database": None,
            "deadline": None,
            "derandomize": False,
            "phases": phases,
            "report_multiple_bugs": False,
            "suppress_health_check": list(HealthCheck),
        }

    @contextmanager
    def watched_runs(self) -> Iterator[None]:
        """Return a context in which the runs of all simulated worlds are counted."""
        run, explain = WorldRun.run, WorldRun.explain

        def counted_run(world_run: WorldRun) -> Any:
            try:
                return run(world_run)
            finally:
                self.run_count += 1
                self.virtual_s += world_run._seconds

        def watched_explain(
            world_run: WorldRun, error: BaseException, names: Sequence[str]
        ) -> None:
            self._case = {
                "plan": world_run._plan.to_json(),
                "faults": world_run._faults.to_json(),
            }
            if world_run.rules is not None:
                self._case["rules"] = asdict(world_run.rules())
            explain(world_run, error, names)

        with (
            patch.object(WorldRun, "run", counted_run),
            patch.object(WorldRun, "explain", watched_explain),
        ):
            yield

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Set the number of examples of each test to the soak's number. Tests without examples are
        left out."""
        kept = [item for item in items if self._prepare(item)]
        if items and not kept:
            self.problem = f"{items[0].nodeid} draws no examples; decorate it with @given"
        items[:] = kept

    def _prepare(self, item: pytest.Item) -> bool:
        if item.config.pluginmanager.hasplugin("timeout"):
            # A batch takes longer than one test may take. The exception of pytest-timeout would
            # end any task of the simulated run, which then looks like a failure of the program.
            item.add_marker(pytest.mark.timeout(0), append=False)
        method: Any = getattr(item, "obj", None)
        function: Any = getattr(method, "__func__", method)
        case: Any = getattr(item, "cls", None)
        if isinstance(getattr(case, "settings", None), settings):  # a state machine's TestCase
            case.settings = settings(case.settings, **self._changes)
            return True
        if not getattr(function, "is_hypothesis_test", False):
            return False
        before = getattr(function, "_hypothesis_internal_use_settings", None) or settings.default
        function._hypothesis_internal_use_settings = settings(before, **self._changes)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        """Collect the failure of a test."""
        report = yield
        if call.when == "call":
            self.test_count += 1
        if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
            error = call.excinfo.value
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            lines = str(error).splitlines() or [""]
            kind = f"{type(error).__name__}: {_NUMBERS.sub('N', lines[0])}"[:200]
            text = "\n".join([f"{type(error).__name__}: {error}", *_notes(error)])
            self.failures.append(
                SoakFailure(
                    self._path + item.nodeid[item.nodeid.find("::") :],
                    kind,
                    text[:MESSAGE_CHARS_MAX],
                    self._case,
                )
            )
        return report

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep the reason why a module could not be imported."""
        if report.failed:
            self.problem = _reason(str(report.longrepr)) or "the test could not be imported"


def _notes(error: BaseException) -> list[str]:
    return [str(one) for one in getattr(error, "__notes__", [])]


def _reason(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR", "E "))]
    return [*lines[-1:], *errors[-1:]][-1] if lines else ""


def save_case(failure: SoakFailure, folder: Path) -> Path | None:
    """Write the plan and faults of a failure into a folder, and return the path. A file of the same
    test and kind of failure is replaced. Returns None if the failure has no plan."""
    if failure.case is None:
        return None
    words = re.sub(r"[^A-Za-z0-9]+", "-", f"{failure.test.rpartition('::')[2]} {failure.kind}")
    path = folder / f"{words.strip('-')[:120]}.json"
    text = json.dumps({"test": failure.test, **failure.case, "error": failure.text}, indent=2)
    path.write_text(text + "\n", encoding="utf-8")
    return path
