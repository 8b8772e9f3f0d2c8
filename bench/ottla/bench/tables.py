"""Text tables of a benchmark's figures, laid out like the tables of other commands. Prints nothing
itself."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.model.text_tables import lay_out


def table_of(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return the rows of a table as aligned text. Numbers are aligned to the right, with separators
    of thousands. Other cells are aligned to the left."""
    kept = [list(row) for row in rows]
    is_number = [
        bool(kept) and all(isinstance(row[at], int | float) for row in kept)
        for at in range(len(headers))
    ]
    header, lines = lay_out(headers, [[_shown(cell) for cell in row] for row in kept], is_number)
    return "\n".join([*header, *lines])


def table_of_figures(figures: Mapping[str, Any]) -> str:
    """Return measured values as a text table with one row for each value."""
    return table_of(("FIGURE", "VALUE"), [(name, _shown(value)) for name, value in figures.items()])


def _shown(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int | float) else str(cell)
