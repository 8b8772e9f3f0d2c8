"""Derives the shell command that starts this program again from the current directory."""

import os
import shlex
import shutil
import sys
from pathlib import Path


def own_command() -> str:
    """Return the shell command for `ottla` that also works outside an activated virtual
    environment."""
    return as_typed(sys.argv[0], shutil.which("ottla"), Path.cwd())


def as_typed(program: str, on_path: str | None, directory: Path) -> str:
    """Return the shell command that starts a program again. `program` is the program's path.

    `on_path` is the path of the program that the shell finds under the name `ottla`, or None.
    `directory` is the current directory.
    """
    started = Path(program)
    if started.parts[-2:] == ("cli", "__main__.py"):
        return f"{shlex.quote(_from(directory, Path(sys.executable)))} -m ottla.cli"
    if started.name != "ottla":
        return "ottla"  # This process is another program that runs our commands.
    if on_path is not None and os.path.realpath(on_path) == os.path.realpath(directory / started):
        return "ottla"
    return shlex.quote(_from(directory, started))


def _from(directory: Path, program: Path) -> str:
    """Return the path of a program: relative if the program is below `directory`, otherwise
    absolute."""
    whole = Path(os.path.normpath(directory / program))
    if whole.is_relative_to(directory):
        return str(whole.relative_to(directory))
    return str(whole)
