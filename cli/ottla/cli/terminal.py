"""All that commands print: every text is made visible on its way, the terminal is steered here.

No other module of the package calls `print`: a name that a stranger chose is then safe wherever it
is shown.  Lines of a record's own bytes go out by `consume.py`.  A command that a text names, as in
"see 'ottla topic list'", is shown as the user can type it.  Only terminals get colours; NO_COLOR
turns them off, FORCE_COLOR on.
"""

import os
import re
import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TextIO

from ottla.model.visible_text import visible, visible_json

ERASE_LINE = "\r\033[K"
CLEAR_SCREEN = "\033[H\033[2J"
COMMAND_NAMED = re.compile(r"('|^  |\| )ottla (?=[a-z-])", re.MULTILINE)
"""A command in a text: quoted, or on a line of its own."""


class Colour(StrEnum):
    """How a terminal is told to write."""

    BOLD = "\033[1m"
    RED = "\033[31m"
    GREEN = "\033[32m"
    YELLOW = "\033[33m"
    NONE = "\033[0m"


def is_coloured(stream: TextIO) -> bool:
    """Return whether a stream gets colours: terminals do, where the environment does not object."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def as_typed_here(text: str) -> str:
    """Return a text with its commands as the user can type them, such as '.venv/bin/ottla up'."""
    if COMMAND_NAMED.search(text) is None:
        return text
    # Not needed where no command is named.
    from ottla.cli.own_command import own_command

    own = own_command()
    return COMMAND_NAMED.sub(lambda found: f"{found[1]}{own} ", text)


def say(line: str = "", *, is_flushed: bool = False) -> None:
    """Print one line of output."""
    print(as_typed_here(visible(line)), flush=is_flushed)


def say_block(
    text: str, *, is_flushed: bool = False, colours: Mapping[str, Colour] | None = None
) -> None:
    """Print several lines of output, which the caller has laid out.

    `colours` are those of lines, by their beginnings.
    """
    shown = as_typed_here(visible(text, keeps_layout=True))
    if colours and is_coloured(sys.stdout):
        shown = "\n".join(_painted(line, colours) for line in shown.split("\n"))
    print(shown, flush=is_flushed)


def say_verbatim(text: str) -> None:
    """Print a text of our own as it is, such as a script."""
    print(text, end="")


def say_json(value: object, *, indent: int | None = None, is_flushed: bool = False) -> None:
    """Print a value as JSON for machines: a line, or with an indent several."""
    print(visible_json(value, indent=indent), flush=is_flushed)


def complain(line: str) -> None:
    """Print why a command ends, as one line on standard error."""
    program, colon, reason = as_typed_here(visible(line)).partition(": ")
    if colon and is_coloured(sys.stderr):
        program = f"{Colour.RED}{program}{Colour.NONE}"
    print(f"{program}{colon}{reason}", file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Print what is not the command's output on standard error."""
    print(as_typed_here(visible(text, keeps_layout=True)), file=sys.stderr, flush=True)


def reason_of(error: Exception) -> str:
    """Return why a file cannot be read or written, without its name, which the message has."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def is_watched() -> bool:
    """Whether a person looks at standard error, so that progress may be drawn."""
    return sys.stderr.isatty()


def draw(line: str) -> None:
    """Replace the line of progress, which has no end yet."""
    _steer(f"{ERASE_LINE}{visible(line)}")


def wipe() -> None:
    """Erase the line of progress."""
    _steer(ERASE_LINE)


def draw_lines(lines: Iterable[str], *, line_count_before: int) -> None:
    """Replace the lines that were drawn before."""
    back = f"\033[{line_count_before}A\r" if line_count_before else ""
    text = "".join(f"\033[K{visible(line)}\n" for line in lines)
    _steer(f"{back}{text}\033[J")


def clear_screen() -> None:
    """Clear standard output's screen."""
    print(CLEAR_SCREEN, end="")


def _painted(line: str, colours: Mapping[str, Colour]) -> str:
    for beginning, colour in colours.items():
        if line.startswith(beginning):
            return f"{colour}{line}{Colour.NONE}"
    return line


def _steer(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)
