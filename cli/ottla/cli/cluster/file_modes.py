"""What other users of the machine may do to a node's files: one warning at its start.

A key that all can read refuses the start (model/tls/context_driver.py).  What is left is warned of:
directories and files that others may write, and, where a node has secrets, directories that others
may read: the metadata log has keys of users, logs have records.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

NAMED_MAX = 4
"""Paths that the warning names; the rest is counted."""

CONFIDED = stat.S_IROTH
CHANGED = stat.S_IWOTH


def warning_of_modes(
    directories: Iterable[str], files: Iterable[str], *, has_secrets: bool
) -> str | None:
    """Return the sentence about directories and files that are open to others, None without."""
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
    """Yield the paths that others have such a right to, each once; what is not there has none."""
    for path in dict.fromkeys(os.path.abspath(path) for path in paths if path):
        try:
            has_right = Path(path).stat().st_mode & wanted
        except OSError:
            continue  # the start itself says so where it is needed
        if has_right and _is_reached_by_others(path):
            yield path, mode


def _is_reached_by_others(path: str) -> bool:
    """Return whether all directories above let other users through."""
    return all(above.stat().st_mode & stat.S_IXOTH for above in Path(path).resolve().parents)
