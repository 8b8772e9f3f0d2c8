"""Creates files and directories of a node that other users of the machine cannot read.

The files of a node contain secrets: passwords in settings, keys of users and tokens in the metadata
log and its snapshots, records in partition logs. A node therefore creates settings files for its
owner only, and all other files for its owner and group only. Files that already exist keep their
modes; the node logs a warning about unsafe modes when it starts.
"""

import os
import stat
from pathlib import Path

PRIVATE_MODE = 0o600
OTHERS = 0o027
"""Permission bits that no file of a node may have: write for the group, and all bits for other
users of the machine."""


def restrict_umask() -> None:
    """Set the umask of this process, so that other users can neither read nor write the directories
    and files that it creates.

    A stricter umask is left unchanged.
    """
    os.umask(os.umask(OTHERS) | OTHERS)


def write_private(path: Path, text: str, *, like: os.stat_result | None = None) -> None:
    """Write a file that only its owner may read. An existing file is replaced atomically.

    `like` is the status of another file, whose owner, group and mode the new file gets.
    """
    part = path.with_name(f".{path.name}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_MODE)
    with os.fdopen(descriptor, "w") as file:
        mode = PRIVATE_MODE if like is None else stat.S_IMODE(like.st_mode)
        os.fchmod(descriptor, mode)  # a file left from before may have another
        if like is not None and (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(descriptor, like.st_uid, like.st_gid)
        file.write(text)
    part.replace(path)
