"""What became of a command that asks for several things: what was done, then what was refused."""

import argparse
from collections.abc import Sequence
from typing import Any

from ottla.cli.common import print_json, print_table
from ottla.cli.terminal import note
from ottla.model.errors import ErrorCode, RefusedError, row_of


def meaning_of(code: int, message: str | None = None) -> str:
    """Return why a request about a topic was refused, with the cure where it does not exist."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return "it does not exist; see 'ottla topic list'"
    return message or row_of(code).meaning


def show(
    arguments: argparse.Namespace,
    headers: Sequence[str],
    rows: Sequence[Sequence[Any]],
    refusals: Sequence[RefusedError] = (),
    *,
    command: str = "topic",
) -> None:
    """Show what was done, then raise what was refused: the last of it, the others as notes."""
    if arguments.format == "json":
        names = [header.lower().replace("-", "_") for header in headers]
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    elif rows or not refusals:
        print_table(headers, rows)
    for refusal in refusals[:-1]:
        note(f"ottla {command}: {refusal}")
    for refusal in refusals[-1:]:
        raise refusal
