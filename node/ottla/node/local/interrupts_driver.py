"""SIGTERM handled like Ctrl-C, so that a command also cleans up when `timeout` or `kill` ends
it."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


def interrupt(number: int, frame: FrameType | None) -> None:
    """Call the handler of SIGINT, or raise KeyboardInterrupt if SIGINT has no handler.

    Trio's SIGINT handler waits until the interrupted frame may be interrupted.  Without it, an
    exception that was raised in the middle of Trio's own loop left a run that never ended.
    """
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        handler(signal.SIGINT, frame)
    else:
        raise KeyboardInterrupt


@contextmanager
def lasting_interrupts() -> Iterator[Callable[[], None]]:
    """Let SIGINT and SIGTERM raise KeyboardInterrupt, and yield a function that raises it again.

    C code of other libraries may lose an exception that a signal handler raised, for example while
    it makes an object; then a loop that calls the yielded function ends nevertheless.  Not for code
    that runs Trio in the main thread, which has a SIGINT handler of its own.
    """
    came = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        came.set()
        raise KeyboardInterrupt

    def check() -> None:
        if came.is_set():
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield check
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield check
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
