"""Places where another user of the machine would see a secret: argv, environments, open files."""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path


def secrets_in_sight(secrets: Iterable[str], *directories: Path) -> list[str]:
    """Return the places, among all processes and below directories, that show one of the secrets.

    Files are looked at by their modes alone, as seen from their directory: those that others may
    read, in directories that others may enter.  Environments are their owner's, and are searched
    all the same: children and crash reports inherit them.
    """
    wanted = [secret.encode() for secret in secrets]
    return [
        where
        for where, data in (*_processes(), *_open_files(directories))
        if any(secret in data for secret in wanted)
    ]


def open_to_others(*directories: Path) -> list[str]:
    """Return the files that others may read or change, and the directories that they may list."""
    return [str(path) for path in _open_paths(directories)]


def _processes() -> Iterator[tuple[str, bytes]]:
    own = {os.getpid(), os.getppid()}
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal() or int(process.name) in own:
            continue
        for name in ("cmdline", "environ"):
            with suppress(OSError):  # it has ended, or is another user's
                yield f"{name} of process {process.name}", (process / name).read_bytes()


def _open_files(directories: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    for path in _open_paths(directories):
        if path.is_file():
            yield str(path), path.read_bytes()


def _open_paths(directories: Iterable[Path]) -> Iterator[Path]:
    for directory in directories:
        yield from _below(directory)


def _below(path: Path) -> Iterator[Path]:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return  # it went meanwhile
    if stat.S_ISLNK(mode):
        return
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        yield path
    if stat.S_ISDIR(mode) and mode & stat.S_IXOTH:
        for one in path.iterdir():
            yield from _below(one)
