"""Files and directories of a node that other users of the machine do not read.

A node's files have secrets: settings have passwords, the metadata log and its snapshots the keys
of users and tokens, logs the records.  So a node makes its files for its owner and its group alone,
and files of settings for its owner.  Files that were there before keep their modes; a start warns.
"""

import os
from pathlib import Path

PRIVATE_MODE = 0o600
OTHERS = 0o027
"""Rights that nothing made by a node gives: the group does not write, others do nothing."""


def keep_others_out() -> None:
    """Have this process make directories and files that other users can neither read nor write.

    A stricter umask stays.
    """
    os.umask(os.umask(OTHERS) | OTHERS)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, in place of the one before at once."""
    part = path.with_name(f".{path.name}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_MODE)
    with os.fdopen(descriptor, "w") as file:
        os.fchmod(descriptor, PRIVATE_MODE)  # one that was left behind has another
        file.write(text)
    part.replace(path)
