"""Commands of the system, as the harness runs them: bounded in time, loud when they fail."""

import subprocess
from collections.abc import Sequence

TIMEOUT_S = 60.0
"""A command that takes longer hangs; copying a full disk image takes a second or two."""


class CommandError(Exception):
    """A command of the system failed; says which, and what it said."""


def run(command: Sequence[str], *, given: str = "", is_checked: bool = True) -> str:
    """Run a command with `given` on its standard input; return what it said on both outputs."""
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
