"""Markdown tables and code for the reference pages."""

from collections.abc import Iterable, Sequence

NOTICE = "<!-- Written by `make docs`; a test compares it with the declarations. -->\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with these columns and rows."""
    lines = [columns, ["---"] * len(columns), *rows]
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def code(text: str) -> str:
    """Return a text as inline code, or "" if the text is empty."""
    return f"`{text}`" if text else ""
