"""All that commands print: every text is made visible on its way, the terminal is steered here.

No other module of the package calls `print`: a name that a stranger chose is then safe wherever it
is shown.  Lines of a record's own bytes go out by `consume.py`.
"""

import sys
from collections.abc import Iterable

from ottla.model.visible_text import visible, visible_json

ERASE_LINE = "\r\033[K"
CLEAR_SCREEN = "\033[H\033[2J"


def say(line: str = "", *, is_flushed: bool = False) -> None:
    """Print one line of output."""
    print(visible(line), flush=is_flushed)


def say_block(text: str, *, is_flushed: bool = False) -> None:
    """Print several lines of output, which the caller has laid out."""
    print(visible(text, keeps_layout=True), flush=is_flushed)


def say_json(value: object, *, indent: int | None = None, is_flushed: bool = False) -> None:
    """Print a value as JSON for machines: a line, or with an indent several."""
    print(visible_json(value, indent=indent), flush=is_flushed)


def complain(line: str) -> None:
    """Print why a command ends, as one line on standard error."""
    print(visible(line), file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Print what is not the command's output on standard error."""
    print(visible(text, keeps_layout=True), file=sys.stderr, flush=True)


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


def _steer(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)
