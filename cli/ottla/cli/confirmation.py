"""Asks the user to confirm changes, by one rule for all commands.

A command asks once before it deletes records, offsets, groups, credentials or ACLs. It also asks
before it removes a node, a replica or a voter, and before any change that cannot be undone. `--yes`
confirms beforehand. Without `--yes` and without a terminal, the command changes nothing and exits
with code 2. A script therefore never waits for an answer, and never mistakes a refusal for success.
All other commands ask no questions, and have no `--yes`.
"""

import argparse
import sys

from ottla.cli.options import one_of, option
from ottla.cli.terminal import note
from ottla.model.errors import OttlaError

CONFIRMATION = one_of(
    option("--dry-run", "show the changes without making them"),
    option("--yes --execute", "make the changes without a question (default: show them, and ask)"),
)
"""Options of a command that asks for a confirmation and can show its changes beforehand.
`--execute` is an earlier spelling of --yes."""

YES = option("--yes", "do it without a question")
"""Option of a command that asks for a confirmation and has no changes to show beforehand."""

UNCHANGED = "nothing was changed"


class UnconfirmedError(OttlaError):
    """Error if a change needs a confirmation, but the process has no terminal on which to ask. The
    exit code is 2."""

    def __init__(self) -> None:
        super().__init__(f"{UNCHANGED}, since no terminal can confirm it; add --yes")


def can_ask() -> bool:
    """Return True if a person can answer a question, because standard input and standard error are
    a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(arguments: argparse.Namespace, question: str) -> bool:
    """Ask on the terminal whether to make the changes that the command has shown, and return the
    answer. Prints a note if the answer is no.

    Raises UnconfirmedError if there is no terminal.
    """
    decision = _decide(arguments)
    return _is_yes(_ask(question)) if decision is None else decision


async def confirm_in_loop(arguments: argparse.Namespace, question: str) -> bool:
    """Ask on the terminal whether to make the changes that the command has shown, as `confirm`
    does, without blocking the event loop. Returns the answer.

    Raises UnconfirmedError if there is no terminal.
    """
    decision = _decide(arguments)
    if decision is not None:
        return decision
    import trio  # not needed by commands that read files only

    return _is_yes(await trio.to_thread.run_sync(_ask, question, abandon_on_cancel=True))


def _decide(arguments: argparse.Namespace) -> bool | None:
    """Return the answer to the confirmation question if the command's options determine it, or None
    if the user must be asked."""
    if getattr(arguments, "dry_run", False):
        note(f"{UNCHANGED} (--dry-run)")
        return False
    if arguments.yes:
        return True
    if not can_ask():
        raise UnconfirmedError
    return None


def _ask(question: str) -> str:
    note(f"{question} [y/N]")
    return sys.stdin.readline()


def _is_yes(said: str) -> bool:
    if said.strip().lower() in ("y", "yes"):
        return True
    note(UNCHANGED)
    return False
