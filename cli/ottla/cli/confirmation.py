"""The one way to confirm a change: `--dry-run` shows it, `--yes` makes it without a question.

A command with these options first shows what it would change.  On a terminal it then asks.  Without
a terminal and without `--yes` it changes nothing, so that a script never waits for an answer.
"""

import argparse
import sys

from ottla.cli.options import one_of, option
from ottla.cli.terminal import note

CONFIRMATION = one_of(
    option("--dry-run", "show the changes without making them"),
    option("--yes --execute", "make the changes without a question (default: show them, and ask)"),
)
"""Options of a command that asks.  `--execute` is the spelling of earlier versions."""

UNCHANGED = "nothing was changed"


def can_ask() -> bool:
    """Return whether a person can answer: input and messages belong to a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def is_refused(arguments: argparse.Namespace) -> bool:
    """Return whether the arguments already exclude a change.  Then no question is asked."""
    return bool(arguments.dry_run) or not (arguments.yes or can_ask())


def confirm(arguments: argparse.Namespace, question: str) -> bool:
    """Return whether to make the changes that were shown.  Asks on a terminal, and prints a note if
    nothing is changed."""
    if _decide(arguments):
        return True
    return not is_refused(arguments) and _is_yes(_ask(question))


async def confirm_in_loop(arguments: argparse.Namespace, question: str) -> bool:
    """Return whether to make the changes, as `confirm` does, without blocking the event loop."""
    if _decide(arguments):
        return True
    if is_refused(arguments):
        return False
    import trio  # not needed by commands that read files only

    return _is_yes(await trio.to_thread.run_sync(_ask, question, abandon_on_cancel=True))


def _decide(arguments: argparse.Namespace) -> bool:
    """Return whether no question is needed.  Prints a note if the arguments exclude a change."""
    if arguments.dry_run:
        note(f"{UNCHANGED} (--dry-run)")
    elif is_refused(arguments):
        note(f"{UNCHANGED}; --yes does it")
    return bool(arguments.yes)


def _ask(question: str) -> str:
    note(f"{question} [y/N]")
    return sys.stdin.readline()


def _is_yes(said: str) -> bool:
    if said.strip().lower() in ("y", "yes"):
        return True
    note(UNCHANGED)
    return False
