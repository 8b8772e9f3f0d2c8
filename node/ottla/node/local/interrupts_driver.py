"""Handling of SIGTERM like Ctrl-C, so that a command also cleans up after a signal from `timeout`
or `kill`."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

from ottla.model.signal_handlers_driver import signal_handlers


def interrupt(number: int, frame: FrameType | None) -> None:
    """Call the handler of SIGINT, or raise KeyboardInterrupt if SIGINT has no handler.

    Trio's SIGINT handler waits until the interrupted frame may be interrupted. Without that
    handler, an exception could be raised in the middle of Trio's own loop, which would then never
    end.
    """
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        handler(signal.SIGINT, frame)
    else:
        raise KeyboardInterrupt


def interrupted_by_sigterm() -> AbstractContextManager[None]:
    """Return a context manager in whose block SIGTERM acts like Ctrl-C. A command therefore cleans
    up even if `timeout 60 COMMAND` ends it."""
    return signal_handlers(interrupt, signal.SIGTERM)


@contextmanager
def lasting_interrupts() -> Iterator[Callable[[], None]]:
    """Make SIGINT and SIGTERM raise KeyboardInterrupt in the block. Yields a function that raises
    the exception again if it was lost.

    C code of other libraries may drop an exception of a signal handler, for example while it
    creates an object. A loop should therefore call the yielded function repeatedly. This context is
    unsuitable for code that runs Trio in the main thread, because Trio has its own SIGINT handler.
    """
    is_interrupted = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        raise KeyboardInterrupt

    def check() -> None:
        if is_interrupted:
            raise KeyboardInterrupt

    with interrupted_by_sigterm(), signal_handlers(note, signal.SIGINT):
        yield check
