"""Signal handlers that are installed for the duration of a block."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], object]
"""Function that Python calls in the main thread with the signal's number and the current frame."""


@contextmanager
def signal_handlers(handler: Handler, *numbers: int) -> Iterator[None]:
    """Handle the given signals with `handler` until the block ends, then restore the earlier
    handlers.

    Does nothing outside the main thread, because Python can set handlers only in that thread. An
    earlier handler that was not installed by Python code cannot be restored. In this case `handler`
    stays installed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            if earlier is not None:
                signal.signal(number, earlier)
