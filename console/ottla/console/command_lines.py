"""Formats the commands that pages show, with their arguments quoted for a shell. Pure."""

import shlex
from collections.abc import Mapping


def command_line(command: str, values: Mapping[str, str]) -> str:
    """Return a command of `ottla` in which values replace the parameters in braces, such as
    `{topic}`.

    A parameter without a value is replaced by its name in capitals. Values are quoted for the
    shell, because other users may have chosen them.
    """
    words = []
    for word in command.split():
        if word.startswith("{"):
            name = word[1:-1]
            word = values.get(name) or name.upper()
        words.append(word)
    return shlex.join(words)
