"""The words by which a user can call this program again, from where he stands."""

import os
import shlex
import shutil
import sys
from pathlib import Path


def own_command() -> str:
    """Return what to type for `ottla`: a virtual environment need not be activated."""
    return as_typed(sys.argv[0], shutil.which("ottla"), Path.cwd())


def as_typed(program: str, on_path: str | None, directory: Path) -> str:
    """Return the words for a program that was started as `program`.

    `on_path` is what the shell finds under the name `ottla`.
    """
    started = Path(program)
    if started.parts[-2:] == ("cli", "__main__.py"):
        return f"{shlex.quote(_from(directory, Path(sys.executable)))} -m ottla.cli"
    if started.name != "ottla":
        return "ottla"  # another program that runs our commands
    if on_path is not None and os.path.realpath(on_path) == os.path.realpath(directory / started):
        return "ottla"
    return shlex.quote(_from(directory, started))


def _from(directory: Path, program: Path) -> str:
    """Return a program's path, the shorter way."""
    whole = Path(os.path.normpath(directory / program))
    if whole.is_relative_to(directory):
        return str(whole.relative_to(directory))
    return str(whole)
