"""Reads a password from a file, the environment, a prompt without echo or standard input.

A password is never an argument, because every user of the machine can see the arguments of a
process.
"""

import os
import sys
from getpass import getpass
from pathlib import Path

from ottla.cli.terminal import reason_of
from ottla.model.errors import ConfigError

PASSWORD_VARIABLE = "OTTLA_PASSWORD"  # the name of a variable


def read_password(path: str | None, user: str) -> str:
    """Return the new password of a user, from a file, the environment, a prompt or standard input.
    Raises ConfigError if the password is empty."""
    if path is not None:
        try:
            password = Path(path).read_text().removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                "--password-file", f"{path} cannot be read: {reason_of(error)}"
            ) from None
    elif PASSWORD_VARIABLE in os.environ:
        password = os.environ[PASSWORD_VARIABLE]
    elif sys.stdin.isatty():
        password = getpass(f"password of {user}: ")
        if password != getpass("again: "):
            raise ConfigError("password", "was typed in two ways")
    else:
        password = sys.stdin.readline().removesuffix("\n")
    if not password:
        raise ConfigError("password", f"is empty; give it by a file or {PASSWORD_VARIABLE}")
    return password
