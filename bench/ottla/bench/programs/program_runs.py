"""Runs a program of another maker until its end, as a load."""

import subprocess
from collections.abc import Sequence

from ottla.model.errors import ErrorCode, RefusedError

RUN_TIMEOUT_S = 300.0
SHOWN_OUTPUT_LENGTH = 300


def output_of(name: str, command: Sequence[str]) -> str:
    """Run a command and return its standard output. `name` is the program's name in messages.

    Raises RefusedError if the program does not end in time, and with the end of its output if its
    exit code is not 0.
    """
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        reason = f"{name} did not end in {RUN_TIMEOUT_S:g} s"
        raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, reason) from None
    if ended.returncode:
        raise without_result(name, ended.stdout + ended.stderr)
    return ended.stdout


def without_result(name: str, output: str) -> RefusedError:
    """Return the error for a program that printed no result, with the end of its output."""
    reason = f"{name} printed no result: {output.strip()[-SHOWN_OUTPUT_LENGTH:]}"
    return RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)
