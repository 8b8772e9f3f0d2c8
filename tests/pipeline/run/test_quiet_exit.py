"""The end of a program: queries stop between batches, and py4j reports no cut-off calls."""

import logging
import sys
from types import TracebackType
from typing import Any

import pytest

from ottla.pipeline.run import quiet_exit
from ottla.pipeline.run.quiet_exit import (
    BATCH_TIMEOUT_S,
    QuietFilter,
    end_sessions,
    stop_between_batches,
    with_short_interrupts,
)


class Clock:
    """The time of the tests, in which only a wait takes any."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Query:
    """A query within a batch that ends at some time."""

    isActive = True  # noqa: N815 - Spark's name

    def __init__(self, clock: Clock, ends_s: float) -> None:
        self._clock = clock
        self._ends_s = ends_s
        self.stopped_s: float | None = None

    @property
    def status(self) -> dict[str, bool]:
        return {"isTriggerActive": self._clock.now_s < self._ends_s}

    def stop(self) -> None:
        self.stopped_s = self._clock.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(quiet_exit, "time", clock)
    return clock


def test_a_query_is_stopped_after_its_batch_but_not_within_one(clock: Clock) -> None:
    queries: Any = [Query(clock, 0), Query(clock, 2), Query(clock, BATCH_TIMEOUT_S * 2)]
    stop_between_batches(queries)
    assert queries[0].stopped_s == 0
    assert queries[1].stopped_s == pytest.approx(2, abs=0.1)
    assert queries[2].stopped_s is None
    assert clock.now_s == pytest.approx(BATCH_TIMEOUT_S, abs=0.1)


class Session:
    """A session of a Spark that fails each call, or was stopped."""

    def __init__(self, *, is_stopped: bool) -> None:
        self._jsc = None if is_stopped else object()
        self.sparkContext = self

    @property
    def streams(self) -> Any:
        raise RuntimeError("the JVM is gone")


def test_the_end_of_a_program_never_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = {Session(is_stopped=True), Session(is_stopped=False)}
    monkeypatch.setattr(quiet_exit, "_sessions", sessions)
    monkeypatch.setattr(quiet_exit, "_quiet", QuietFilter())
    end_sessions()
    assert quiet_exit._quiet.is_ending


def record_of(module: str, error: BaseException) -> logging.LogRecord:
    """Return an error that a module reports."""
    trace = (type(error), error, error.__traceback__)
    return logging.LogRecord("root", logging.ERROR, f"/x/{module}.py", 1, "failed", None, trace)


def error_during(first: BaseException) -> BaseException:
    """Return an error that was raised while another one was handled."""
    try:
        try:
            raise first
        except BaseException:
            raise BrokenPipeError from None
    except BrokenPipeError as error:
        return error


def test_py4j_reports_no_interrupted_calls_and_none_at_the_end() -> None:
    quiet = QuietFilter()
    assert not quiet.filter(record_of("clientserver", KeyboardInterrupt()))
    assert not quiet.filter(record_of("java_gateway", error_during(KeyboardInterrupt())))
    assert quiet.filter(record_of("java_gateway", error_during(ValueError())))
    assert quiet.filter(record_of("my_program", KeyboardInterrupt()))
    quiet.is_ending = True
    assert not quiet.filter(record_of("java_gateway", ValueError()))
    assert quiet.filter(record_of("my_program", ValueError()))


def test_an_interrupt_is_shown_up_to_the_programs_own_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names: dict[str, Any] = {}
    source = "def wait():\n    raise KeyboardInterrupt\n"
    exec(compile(source, "/lib/pyspark/query.py", "exec"), names)
    others: list[type[BaseException]] = []

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        others.append(kind)

    hook = with_short_interrupts(show)
    try:
        names["wait"]()
    except KeyboardInterrupt:
        hook(*sys.exc_info())
    printed = capsys.readouterr().err
    assert "test_quiet_exit.py" in printed
    assert printed.endswith("KeyboardInterrupt\n")
    assert "pyspark" not in printed
    try:
        raise ValueError
    except ValueError:
        hook(*sys.exc_info())
    assert others == [ValueError]
