"""What became of a command that asks for several things: what was done, then what was refused."""

import argparse
from collections.abc import Sequence
from typing import Any

from ottla.cli.common import print_json, print_table
from ottla.cli.terminal import note
from ottla.client.cluster import raise_for
from ottla.model.errors import row_of

Refusal = tuple[int, str]
"""Kafka's error code, and one sentence with the cure."""


def show(
    arguments: argparse.Namespace,
    headers: Sequence[str],
    rows: Sequence[Sequence[Any]],
    refusals: Sequence[Refusal] = (),
    *,
    command: str = "topic",
) -> None:
    """Show what was done, then raise what was refused: the last of it, the others as notes."""
    if arguments.format == "json":
        names = [header.lower().replace("-", "_") for header in headers]
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    elif rows or not refusals:
        print_table(headers, rows)
    for code, message in refusals[:-1]:
        note(f"ottla {command}: {row_of(code).name}: {message}")
    for code, message in refusals[-1:]:
        raise_for(code, message)
