"""Runs system commands for the test harness, with a time limit and an exception on failure."""

import subprocess
from collections.abc import Sequence

TIMEOUT_S = 60.0
"""Time limit of a system command in seconds. Copying a full disk image takes one or two seconds."""


class CommandError(Exception):
    """Raised if a system command failed. The message has the command and its output."""


def run(command: Sequence[str], *, given: str = "", is_checked: bool = True) -> str:
    """Run a command with `given` on its standard input. Returns its standard output and standard
    error. Raises CommandError if the command is missing, takes more than TIMEOUT_S, or fails while
    `is_checked`."""
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise CommandError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise CommandError(f"{' '.join(command)} took more than {TIMEOUT_S:g} s") from None
    if is_checked and done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())
        raise CommandError(f"{' '.join(command)} failed: {said}")
    return done.stdout + done.stderr
