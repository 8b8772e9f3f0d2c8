"""Layout of text tables with aligned columns, within a given width.

Pure. If a table is too wide, its widest columns are narrowed. A cell that is longer than its column
continues on the next line. Columns of text are narrowed before columns of numbers.

Invariants: WithinWidth (no line is wider than the given width or, if that is too narrow, 120
columns), and NothingLost (the parts of a broken cell, joined, are the cell without the spaces at
which it was broken).
"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

TABLE_WIDTH = 120
"""Default width of a table, in characters. It is also used if a narrower terminal would break
numbers or header words; the terminal then wraps the lines.
"""

GAP = "  "
TEXT_WIDTHS_MIN = (16, 8)
"""Minimum widths of text columns, in characters, that are tried in this order before numbers are
broken. The first width with which the table fits is used."""

JOINTS = frozenset(",;:/-._=…")
"""Characters after which a long word may be broken."""


class TableLines(NamedTuple):
    """The lines of a laid-out table, with the header's lines separate from the lines of the
    rows."""

    header: list[str]
    rows: list[str]


def lay_out(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    is_number: Sequence[bool],
    *,
    is_identifier: Sequence[bool] = (),
    width: int = TABLE_WIDTH,
) -> TableLines:
    """Return the lines of a table. Numbers are aligned to the right, texts to the left.

    If the table is too wide, texts other than identifiers are wrapped first. Identifiers, which
    users copy, are wrapped only if numbers would have to be wrapped as well.
    """
    is_whole = [
        one or other for one, other in zip_longest(is_number, is_identifier, fillvalue=False)
    ]
    widths = fitted_widths(headers, rows, is_whole, width)
    return TableLines(
        _lines(map(_header_parts, headers, widths), widths, is_number),
        [line for row in rows for line in _lines(map(broken, row, widths), widths, is_number)],
    )


def fitted_widths(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    is_whole: Sequence[bool],
    width: int,
) -> list[int]:
    """Return the widths of columns with which the table fits into `width`. Columns for which
    `is_whole` is true are narrowed last."""
    cells = [max((len(row[at]) for row in rows), default=0) for at in range(len(headers))]
    natural = [max(len(header), cell) for header, cell in zip(headers, cells, strict=True)]
    room = max(len(headers), width - len(GAP) * (len(headers) - 1))
    if sum(natural) <= room:
        return natural
    parts = [max(map(len, _joined_parts(header)), default=0) for header in headers]
    columns = list(zip(parts, cells, is_whole, strict=True))
    for least in TEXT_WIDTHS_MIN:
        kept = [max(part, cell if whole else min(cell, least)) for part, cell, whole in columns]
        if sum(kept) <= room:
            return _narrowed(natural, kept, room)
    if width < TABLE_WIDTH:
        return fitted_widths(headers, rows, is_whole, TABLE_WIDTH)
    return _narrowed(natural, [min(one, room // len(headers)) for one in natural], room)


def broken(text: str, width: int) -> list[str]:
    """Split a text into parts of at most `width` characters. The text is split at spaces where
    possible, otherwise after punctuation."""
    parts = []
    while len(text) > width:
        end = _break_of(text, width)
        parts.append(text[:end].rstrip(" "))
        text = text[end:].lstrip(" ")
    return [*parts, text]


def _narrowed(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return the widths after applying the largest common limit at which their sum fits into
    `room`. No width is reduced below its value in `least`."""
    limit = min(max(natural), room)
    while True:
        found = [max(low, min(one, limit)) for one, low in zip(natural, least, strict=True)]
        if sum(found) <= room or limit <= 1:
            return found
        limit -= 1


def _break_of(text: str, width: int) -> int:
    space = text.rfind(" ", 1, width + 1)
    if space > width // 3:
        return space
    # A joint near the beginning would leave most of a line empty.
    for end in range(width, width // 4, -1):
        if text[end - 1] in JOINTS:
            return end
    return width


def _joined_parts(header: str) -> list[str]:
    """Return the parts of a header that end with a hyphen or slash, and the last part."""
    return header.replace("-", "- ").replace("/", "/ ").split(" ")


def _header_parts(header: str, width: int) -> list[str]:
    """Return a header as lines of at most `width` characters.

    Lines are broken after a hyphen or slash, and within a part only if the part is wider.
    """
    lines = [""]
    for part in _joined_parts(header):
        if len(lines[-1]) + len(part) > width and lines[-1]:
            lines.append("")
        lines[-1] += part
    return [short for line in lines for short in broken(line, width)]


def _lines(
    parts: Iterable[Sequence[str]], widths: Sequence[int], is_number: Sequence[bool]
) -> list[str]:
    return [
        GAP.join(
            part.rjust(width) if right else part.ljust(width)
            for part, width, right in zip(line, widths, is_number, strict=True)
        ).rstrip()
        for line in zip_longest(*parts, fillvalue="")
    ]
