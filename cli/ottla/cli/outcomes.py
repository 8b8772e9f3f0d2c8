"""Prints the results of a command that sends several requests: first the successes, then the
refusals."""

import argparse
from collections.abc import Sequence
from typing import Any

from ottla.cli.common import print_json
from ottla.cli.tables import print_table
from ottla.cli.terminal import note
from ottla.model.errors import ErrorCode, RefusedError, row_of


def meaning_of(code: int, message: str | None = None) -> str:
    """Return the reason for a refused request about a topic, as text. `code` is Kafka's error code.
    If the topic does not exist, the text includes a remedy."""
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
    keys: Sequence[str] = (),
) -> None:
    """Print the successful requests of a command as a table or JSON, then each refused request as a
    note. Raises the last refusal, if any.

    `keys` are the names of the columns in JSON, if they differ from the headers.
    """
    if arguments.format == "json":
        names = keys or [header.lower().replace("-", "_") for header in headers]
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    elif rows or not refusals:
        print_table(headers, rows)
    for refusal in refusals[:-1]:
        note(f"ottla {command}: {refusal}")
    for refusal in refusals[-1:]:
        raise refusal
