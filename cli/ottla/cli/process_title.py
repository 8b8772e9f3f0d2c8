"""Hides secrets among the arguments of this process, which other users of the machine can read with
`ps` and in /proc/PID/cmdline.

Without this module, a secret argument (`--set ….password=…`) would be visible for as long as a node
or a forked process runs. The secret is overwritten in the memory of the process as soon as Python
runs, on Linux only. A settings file that only its owner can read avoids even this short exposure.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from ottla.cli.secret_files import SECRET_ENDINGS

HIDDEN = b"*"
"""Replacement of a secret among this process's arguments. It is one byte long, because a longer
text might not fit."""

_SELF = Path("/proc/self")
_ARG_START = 45
"""Index of the field `arg_start` in /proc/self/stat, counted after the process name. The next field
is `arg_end`."""

_ENDINGS = b"|".join(re.escape(one.encode()) for one in SECRET_ENDINGS)
_SECRET = re.compile(
    rb"((?:^|[=,\[])[^=,\[]*(?:%s)=).|((?:^|[,\[])password=)." % _ENDINGS, re.DOTALL
)
"""Pattern of a setting `KEY=VALUE` with a secret value, also after `--set=`, and of the password in
`--add-scram`."""


def hide_secrets(arguments: Sequence[str]) -> bool:
    """Overwrite secrets among the arguments with which this process was started.

    Returns False if a secret could not be overwritten.
    """
    if not any(_SECRET.search(os.fsencode(one)) for one in arguments):
        return True
    try:
        given = (_SELF / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return False
    return _overwrite([_without_secret(one) for one in given])


def show_as(*choices: Sequence[str]) -> bool:
    """Change the arguments that `ps` shows for this process. The first of `choices` that fits is
    used.

    The available space is the size of the arguments with which the process was started. If no
    choice fits, the last one is truncated. Returns False if the arguments cannot be replaced.
    """
    return _overwrite(*([os.fsencode(one) for one in choice] for choice in choices))


def _without_secret(argument: bytes) -> bytes:
    found = _SECRET.search(argument)
    if found is None:
        return argument
    # The rest of the argument is removed as well: a value may contain any character.
    return argument[: found.start()] + (found[1] or found[2]) + HIDDEN


def _overwrite(*choices: Sequence[bytes]) -> bool:
    try:
        fields = (_SELF / "stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_START + 1])
        if not 0 < start < end:
            return False
        # The last byte stays 0: without it the kernel would show the environment as well.
        texts = [b"\0".join(one)[: end - start] for one in choices]
        text = next((one for one in texts if len(one) < end - start), texts[-1])[: end - start - 1]
        with open(_SELF / "mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(text.ljust(end - start, b"\0"))
    except (OSError, ValueError, IndexError):
        return False
    return True
