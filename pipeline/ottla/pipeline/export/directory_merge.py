"""Replacement of several files of a directory by one file with the same rows, even after a crash.

A plain directory has no list of its files, so the replacement takes several steps: one rename, and
a deletion of each other file. A note file with the names of the files is written before the first
step and removed after the last one. If the process dies between these steps, the next export or
maintenance completes the replacement that the note file describes. Until then, and for the
milliseconds between the steps, a reader of the directory may see rows twice.
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ottla.model.errors import ConfigError, CorruptDataError
from ottla.pipeline.archive.archive_directory import changing, sync_directory

MERGE_LOCK = "_ottla.merge.lock"
"""Name of the lock file for merging files of a directory. An export does not need this lock, so
both may run at once."""
NOTE = ".ottla-merge.json"
DRAFT = ".ottla-merge-"
"""Prefix of the name of a merged Parquet file that has not replaced its source files yet."""


def replace_files(path: Path, draft: str, names: Sequence[str]) -> None:
    """Replace the named files of a directory by `draft`, a complete and durable file with the same
    rows.

    The caller must hold the directory's `MERGE_LOCK`.
    """
    unfinished = path / f"{NOTE}.tmp"
    with unfinished.open("w") as output:
        json.dump({"draft": draft, "names": list(names)}, output)
        output.flush()
        os.fsync(output.fileno())
    os.rename(unfinished, path / NOTE)
    sync_directory(path)
    complete_replacement(path)


def complete_replacement(path: Path) -> None:
    """Complete the replacement of files that a directory's note file describes, if there is a note
    file.

    The caller must hold the directory's `MERGE_LOCK`. Raises CorruptDataError if the note file is
    malformed.
    """
    try:
        found = json.loads((path / NOTE).read_text())
        draft, names = str(found["draft"]), [str(one) for one in found["names"]]
        first, *others = names
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptDataError(f"{path / NOTE}: {error!r}") from None
    with suppress(FileNotFoundError):  # it was renamed before the process died
        os.rename(path / draft, path / first)
    sync_directory(path)
    for name in others:
        (path / name).unlink(missing_ok=True)
    sync_directory(path)
    (path / NOTE).unlink()


def complete_after_death(path: Path) -> None:
    """Complete the replacement of files that another process started but did not finish. Does
    nothing if no replacement is open, or if that process still runs and has the lock."""
    if (path / NOTE).exists():
        with suppress(ConfigError), changing(path, lock=MERGE_LOCK):
            complete_replacement(path)
