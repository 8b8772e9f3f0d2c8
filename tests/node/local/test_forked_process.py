"""A forked process ends as its body does, and has only the resources it was given by its parent."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.node.local import forked_process_driver as module
from ottla.node.local.forked_process_driver import ForkedProcess, fork_process, may_fork

PATIENCE_S = 30.0


@pytest.fixture(autouse=True)
def as_if_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process fork despite threads left by other tests: these bodies acquire no lock."""
    monkeypatch.setattr(module, "may_fork", lambda: True)


def forked(body: Callable[[], int], **options: object) -> ForkedProcess:
    return fork_process(body, name="forked", **options)  # type: ignore[arg-type]  # few are given


def sleep() -> int:
    threading.Event().wait(PATIENCE_S)
    return 0


def test_it_ends_with_the_code_of_its_body() -> None:
    assert forked(lambda: 7).wait(PATIENCE_S) == 7
    assert forked(lambda: sys.exit(3)).wait(PATIENCE_S) == 3


def test_an_error_of_its_body_is_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    assert forked(lambda: 1 // 0).wait(PATIENCE_S) == 1
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_wait_ends_when_its_time_is_over() -> None:
    child = forked(sleep)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.01)
    assert child.poll() is None
    child.terminate()
    assert child.wait(PATIENCE_S) == -signal.SIGTERM
    child.kill()  # of no effect: another process may have its id


def test_it_ends_by_a_signal_though_its_parent_handles_it() -> None:
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        child = forked(sleep)
        while Path(f"/proc/{child.pid}/comm").read_text() != "forked\n":
            os.sched_yield()
        child.terminate()
        assert child.wait(PATIENCE_S) == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)


def test_it_keeps_no_descriptor_that_it_was_not_given() -> None:
    kept, other = os.pipe()
    os.set_inheritable(other, True)

    def count() -> int:
        found = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
        is_right = kept in found and other not in found and os.getsid(0) == os.getpid()
        return 0 if is_right and os.environ["OTTLA_TOLD"] == "yes" else 1

    try:
        assert forked(count, kept=(kept,), environment={"OTTLA_TOLD": "yes"}).wait(PATIENCE_S) == 0
    finally:
        os.close(kept)
        os.close(other)
    assert "OTTLA_TOLD" not in os.environ


def test_a_process_with_threads_forks_none() -> None:
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait)
    thread.start()
    assert not may_fork()
    is_over.set()
    thread.join()
