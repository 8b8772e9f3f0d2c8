"""The arguments of this process as every user of the machine sees them: `ps`, /proc/PID/cmdline.

A secret among them (`--set ….password=…`) would be there for the life of a node, and of what is
forked from it.  It is overwritten in this process's own memory as soon as Python runs; a file of
settings, which only its owner reads, has none of this.  Linux alone; elsewhere nothing changes.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from ottla.cli.secret_files import SECRET_ENDINGS

HIDDEN = b"*"
"""Stands for a secret; no longer than any."""

_SELF = Path("/proc/self")
_ARG_START = 45
"""Field `arg_start` of /proc/self/stat, counted behind the process's name; `arg_end` follows."""

_ENDINGS = b"|".join(re.escape(one.encode()) for one in SECRET_ENDINGS)
_SECRET = re.compile(
    rb"((?:^|[=,\[])[^=,\[]*(?:%s)=).|((?:^|[,\[])password=)." % _ENDINGS, re.DOTALL
)
"""A setting `KEY=VALUE` with a secret, also behind `--set=`; and a password of `--add-scram`."""


def hide_secrets(arguments: Sequence[str]) -> bool:
    """Overwrite secrets among the arguments that this process was started with.

    Returns False if there are some and they could not be overwritten.
    """
    if not any(_SECRET.search(os.fsencode(one)) for one in arguments):
        return True
    try:
        given = (_SELF / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return False
    return _overwrite([_without_secret(one) for one in given])


def show_as(arguments: Sequence[str]) -> bool:
    """Show these arguments in place of ours, cut to the room there is; return whether it worked."""
    return _overwrite([os.fsencode(one) for one in arguments])


def _without_secret(argument: bytes) -> bytes:
    found = _SECRET.search(argument)
    if found is None:
        return argument
    # Nothing of what follows is kept: a value may contain any character.
    return argument[: found.start()] + (found[1] or found[2]) + HIDDEN


def _overwrite(arguments: Sequence[bytes]) -> bool:
    try:
        fields = (_SELF / "stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_START + 1])
        if not 0 < start < end:
            return False
        # The last byte stays 0: without it the kernel would show the environment, too.
        text = b"\0".join(arguments)[: end - start - 1]
        with open(_SELF / "mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(text.ljust(end - start, b"\0"))
    except (OSError, ValueError, IndexError):
        return False
    return True
