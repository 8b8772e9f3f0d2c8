"""Warns, when a node starts, about files and directories of the node that other users of the
machine can access.

A node does not start if all users can read its private key (model/tls/context_driver.py). This
module warns about other files and directories that other users can write. If a node has secrets,
the module also warns about directories that other users can read: the metadata log contains keys of
users, and partition logs contain records.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

NAMED_MAX = 4
"""Maximum number of paths that one warning about access by other users names. The warning only
counts further paths."""

CONFIDED = stat.S_IROTH
CHANGED = stat.S_IWOTH


def warning_of_modes(
    directories: Iterable[str], files: Iterable[str], *, has_secrets: bool
) -> str | None:
    """Return a warning about a node's directories and files that other users of the machine can
    access, or None if they can access none of these."""
    wanted = CHANGED | CONFIDED if has_secrets else CHANGED
    found = [
        *_open(directories, wanted, "750"),
        *_open(files, CHANGED, "640"),
    ]
    if not found:
        return None
    said = [f"{path} (chmod {mode})" for path, mode in found[:NAMED_MAX]]
    if len(found) > NAMED_MAX:
        said.append(f"{len(found) - NAMED_MAX} more")
    what = "read or write" if has_secrets else "write"
    return f"every user of this machine may {what} {', '.join(said)}"


def _open(paths: Iterable[str], wanted: int, mode: str) -> Iterator[tuple[str, str]]:
    """Yield the distinct paths on which other users of the machine have the permission `wanted`,
    with the mode of each path. Missing paths are skipped."""
    for path in dict.fromkeys(os.path.abspath(path) for path in paths if path):
        try:
            has_right = Path(path).stat().st_mode & wanted
        except OSError:
            continue  # the start itself reports a missing file that it needs
        if has_right and _is_reached_by_others(path):
            yield path, mode


def _is_reached_by_others(path: str) -> bool:
    """Return whether other users of the machine have the permissions to traverse all parent
    directories of the path."""
    return all(above.stat().st_mode & stat.S_IXOTH for above in Path(path).resolve().parents)
