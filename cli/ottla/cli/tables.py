"""Prints all tables of the commands, with one form for bytes, durations and times.

A header is one word in upper case, its parts joined by hyphens. A table is at most 120 columns
wide, or as wide as COLUMNS or the terminal specifies. `ottla.model.text_tables` fits wider tables
into that width. Terminals show headers in bold. Cells with a class of this module are numbers in
JSON.
"""

import os
import re
import sys
from collections.abc import Iterable, Sequence

from ottla.cli.terminal import as_typed_here, say_table
from ottla.model.amounts import amount, duration, moment
from ottla.model.text_tables import TABLE_WIDTH, TableLines, lay_out
from ottla.model.visible_text import visible

HEADER = re.compile(r"[A-Z0-9][A-Z0-9%/]*(-[A-Z0-9%/]+)*")
WIDTH_MIN = 40
"""Minimum result of `output_width`, in columns of text."""

UNKNOWN = "-"


class ByteCount(int):
    """Table cell with a number of bytes, shown with a unit, or as unknown if it is negative."""


class Milliseconds(int):
    """Table cell with a duration in milliseconds, shown with a unit, or as unknown if it is
    negative."""


class Moment(int):
    """Table cell with a time in milliseconds since 1970, shown as ISO 8601 in UTC, or as unknown if
    it is -1."""


class Identifier(str):
    """Table cell with an id that users copy into other commands. The id is broken across lines only
    if the table is too narrow for its numbers as well."""

    __slots__ = ()


def print_table(
    headers: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    indent: int = 0,
    are_headers_data: bool = False,
) -> None:
    """Print a table on standard output. `are_headers_data` is True if users chose the headers, such
    as names of topics."""
    found = table_lines(headers, rows, indent=indent, are_headers_data=are_headers_data)
    say_table(found.header, found.rows)


def note_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table on standard error, separate from the command's output."""
    found = table_lines(headers, rows)
    say_table(found.header, found.rows, is_note=True)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of columns and rows as text, for use within a longer text."""
    found = table_lines(headers, rows)
    return "\n".join([*found.header, *found.rows])


def table_lines(
    headers: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    indent: int = 0,
    are_headers_data: bool = False,
    width: int | None = None,
) -> TableLines:
    """Return the lines of a table as text. Numbers are aligned to the right and texts to the left;
    control characters are escaped."""
    kept = [list(row) for row in rows]
    if are_headers_data:
        headers = [visible(header) for header in headers]
    else:
        wrong = [header for header in headers if not HEADER.fullmatch(header)]
        assert not wrong, wrong
    columns = range(len(headers))
    found = lay_out(
        headers,
        [[shown(cell) for cell in row] for row in kept],
        [_is_number([row[column] for row in kept]) for column in columns],
        is_identifier=[
            any(isinstance(row[column], Identifier) for row in kept) for column in columns
        ],
        width=(width or output_width()) - indent,
    )
    margin = " " * indent
    return TableLines(*([f"{margin}{line}".rstrip() for line in lines] for lines in found))


def header_of(name: str) -> str:
    """Return the header of a table column, such as FREE-BYTES for the name `free_bytes`."""
    return re.sub(r"[^A-Z0-9%/]+", "-", name.upper()).strip("-")


def output_width() -> int:
    """Return the maximum width of tables on standard output, in columns of text. The first known
    value of these is used: the variable COLUMNS, the width of the terminal, TABLE_WIDTH."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return max(WIDTH_MIN, int(asked))
    try:
        width = os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0
    except (OSError, ValueError):
        width = 0
    return max(WIDTH_MIN, width) if width else TABLE_WIDTH


def shown(cell: object) -> str:
    """Return the content of a table cell as text."""
    match cell:
        case None:
            return UNKNOWN
        case bool():
            return "yes" if cell else "no"
        case ByteCount():
            return amount(cell) if cell >= 0 else UNKNOWN
        case Milliseconds():
            return duration(int(cell)) if cell >= 0 else UNKNOWN
        case Moment():
            return moment(cell) if cell != -1 else UNKNOWN
        case float():
            return f"{cell:,.1f}"
        case list() | tuple():
            return visible(",".join(map(str, cell))) or UNKNOWN
    return visible(as_typed_here(str(cell)))


def _is_number(cells: Sequence[object]) -> bool:
    found = [cell for cell in cells if cell is not None]
    return bool(found) and all(
        isinstance(cell, int | float) and not isinstance(cell, bool) for cell in found
    )
