"""Runs system commands in a worker thread, so that trio's event loop continues meanwhile."""

from collections.abc import Sequence
from functools import partial

import trio

from ottla.jepsen.processes.commands import run


async def run_async(command: Sequence[str], *, given: str = "", is_checked: bool = True) -> str:
    """Run a command in a worker thread. Returns its standard output and standard error. Raises
    CommandError as `commands.run` does.

    Waits for the end of the command even if the caller is cancelled.
    """
    call = partial(run, command, given=given, is_checked=is_checked)
    return await trio.to_thread.run_sync(call)
