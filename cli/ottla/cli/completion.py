"""`ottla completion bash|zsh|fish`: print a script; `names`: what the scripts ask a cluster.

The scripts are written by `lab/completion_scripts.py` beforehand: nothing of a command is imported.
"""

import argparse
import shlex
from collections.abc import Iterable

from ottla.cli.terminal import say, say_verbatim

SHELLS = {
    "bash": 'eval "$(ottla completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(ottla completion zsh)" in ~/.zshrc, after compinit',
    "fish": "ottla completion fish | source in ~/.config/fish/config.fish",
}
TIMEOUT_S = 1.5
"""Bound of a look at the cluster: longer, and the prompt seems to hang."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs of 'ottla completion'."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for shell, place in SHELLS.items():
        verbs.add_parser(
            shell, help=f"print the completion script for {shell}", epilog=f"To load it: {place}"
        )
    names = verbs.add_parser(
        "names", help="print names for the scripts, one a line; none if the cluster is not reached"
    )
    names.add_argument("kind", choices=("topics", "groups", "profiles"), help="kind of the names")
    names.add_argument(
        "--line",
        default="",
        metavar="LINE",
        help="command line to complete: its options of the connection count (default: none)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print a script, or names."""
    if arguments.verb == "names":
        for name in sorted(_names(arguments.kind, arguments.line)):
            if not any(one.isspace() for one in name):
                say(name)
        return 0
    from importlib.resources import files

    say_verbatim((files("ottla.cli") / "completions" / f"ottla.{arguments.verb}").read_text())
    return 0


def _names(kind: str, line: str) -> Iterable[str]:
    # Only this verb asks a cluster.
    from ottla.cli.common import add_cluster_arguments
    from ottla.model.errors import OttlaError

    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    add_cluster_arguments(parser)
    try:
        if kind == "profiles":
            from ottla.cli.profiles import profile_names

            return profile_names()
        connection, _ = parser.parse_known_args(_words(line))
        return _names_of_cluster(kind, connection)
    except (OttlaError, OSError, argparse.ArgumentError, SystemExit, BaseExceptionGroup):
        return []  # a line that is being typed is not complained about


def _names_of_cluster(kind: str, connection: argparse.Namespace) -> Iterable[str]:
    import trio

    from ottla.cli.common import bootstrap_of
    from ottla.client.admin import open_admin

    async def ask() -> Iterable[str]:
        with trio.move_on_after(TIMEOUT_S):
            async with open_admin(bootstrap_of(connection)) as admin:
                if kind == "topics":
                    return await admin.list_topics()
                return [group.group_id for group in await admin.list_groups()]
        return []

    return trio.run(ask)


def _words(line: str) -> list[str]:
    """Return the words of a line whose last quotation may still be open."""
    for end in ("", "'", '"'):
        try:
            return shlex.split(line + end)
        except ValueError:
            continue
    return line.split()
