"""Prints all output of commands. Only this module escapes control characters and writes terminal
sequences.

No other module of the package calls `print`, so that names chosen by other users are always
escaped. The exception is `consume.py`, which writes the bytes of records. A command in a text, as
in "see 'ottla topic list'", is shown in a form that the user can type. Only terminals get colours;
NO_COLOR disables them, FORCE_COLOR enables them.
"""

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TextIO

from ottla.model.visible_text import visible, visible_json

ERASE_LINE = "\r\033[K"
CLEAR_SCREEN = "\033[H\033[2J"
COMMAND_NAMED = re.compile(r"('|^  |\| )ottla (?=[a-z-])", re.MULTILINE)
"""Pattern of a command of `ottla` in a text: in quotes, or alone on a line."""


class Colour(StrEnum):
    """Terminal escape sequences that start or end a colour."""

    BOLD = "\033[1m"
    RED = "\033[31m"
    GREEN = "\033[32m"
    YELLOW = "\033[33m"
    NONE = "\033[0m"


def is_coloured(stream: TextIO) -> bool:
    """Return whether output to a stream is coloured. Terminals get colours if the environment does
    not disable them."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def as_typed_here(text: str) -> str:
    """Return the text with its commands of `ottla` in a form that the user can type, such as
    '.venv/bin/ottla up'."""
    if COMMAND_NAMED.search(text) is None:
        return text
    # Imported only if the text names a command.
    from ottla.cli.own_command import own_command

    own = own_command()
    return COMMAND_NAMED.sub(lambda found: f"{found[1]}{own} ", text)


def say(line: str = "", *, is_flushed: bool = False) -> None:
    """Print one line on standard output, with control characters escaped."""
    print(as_typed_here(visible(line)), flush=is_flushed)


def say_block(
    text: str, *, is_flushed: bool = False, colours: Mapping[str, Colour] | None = None
) -> None:
    """Print several lines on standard output without changing their layout.

    `colours` maps the beginning of a line to its colour.
    """
    shown = as_typed_here(visible(text, keeps_layout=True))
    if colours and is_coloured(sys.stdout):
        shown = "\n".join(_painted(line, colours) for line in shown.split("\n"))
    print(shown, flush=is_flushed)


def say_table(header: Sequence[str], rows: Sequence[str], *, is_note: bool = False) -> None:
    """Print the lines of a table. The caller has already escaped them. Terminals show the header in
    bold."""
    stream = sys.stderr if is_note else sys.stdout
    titles = list(header)
    if is_coloured(stream):
        titles = [f"{Colour.BOLD}{line}{Colour.NONE}" for line in titles]
    print("\n".join([*titles, *rows]), file=stream, flush=is_note)


def say_verbatim(text: str) -> None:
    """Print a trusted text, such as a script, on standard output without escaping it."""
    print(text, end="")


def say_json(value: object, *, indent: int | None = None, is_flushed: bool = False) -> None:
    """Print a value as JSON: on one line, or on several lines if `indent` is not None."""
    print(visible_json(value, indent=indent), flush=is_flushed)


def complain(line: str) -> None:
    """Print the reason for which a command fails, as one line on standard error."""
    program, colon, reason = as_typed_here(visible(line)).partition(": ")
    if colon and is_coloured(sys.stderr):
        program = f"{Colour.RED}{program}{Colour.NONE}"
    print(f"{program}{colon}{reason}", file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Print a note on standard error, separate from the command's output on standard output."""
    print(as_typed_here(visible(text, keeps_layout=True)), file=sys.stderr, flush=True)


def reason_of(error: Exception) -> str:
    """Return the reason why a file cannot be read or written, from the operating system's error.
    The file name is omitted, because the caller's message already contains it."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def is_watched() -> bool:
    """Return whether standard error is a terminal, so that progress may be drawn."""
    return sys.stderr.isatty()


def draw(line: str) -> None:
    """Replace the progress line on standard error by `line`, and leave the cursor on it."""
    _steer(f"{ERASE_LINE}{visible(line)}")


def wipe() -> None:
    """Erase the progress line on standard error."""
    _steer(ERASE_LINE)


def draw_lines(lines: Iterable[str], *, line_count_before: int) -> None:
    """Draw lines of progress on the terminal over the previous `line_count_before` lines."""
    back = f"\033[{line_count_before}A\r" if line_count_before else ""
    text = "".join(f"\033[K{visible(line)}\n" for line in lines)
    _steer(f"{back}{text}\033[J")


def clear_screen() -> None:
    """Clear the screen of the terminal to which standard output is written."""
    print(CLEAR_SCREEN, end="")


def _painted(line: str, colours: Mapping[str, Colour]) -> str:
    for beginning, colour in colours.items():
        if line.startswith(beginning):
            return f"{colour}{line}{Colour.NONE}"
    return line


def _steer(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)
