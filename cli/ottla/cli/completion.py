"""`ottla completion bash|zsh|fish`: prints a completion script.

`ottla completion names` prints the profiles, topics and groups that the scripts offer.
`tools/completion_scripts.py` writes the scripts in advance, so that printing one does not import
the other commands.
"""

import argparse
import shlex
from collections.abc import Iterable

from ottla.cli.options import option
from ottla.cli.terminal import say, say_verbatim
from ottla.cli.verbs import verb

SHELLS = {
    "bash": 'eval "$(ottla completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(ottla completion zsh)" in ~/.zshrc, after compinit',
    "fish": "ottla completion fish | source in ~/.config/fish/config.fish",
}
TIMEOUT_S = 1.5
"""Maximum seconds that shell completion waits for the cluster. With a longer wait, the shell prompt
seems to hang."""


def _names(kind: str, line: str) -> Iterable[str]:
    # Only this verb connects to a cluster.
    from ottla.cli.common import CONNECTION
    from ottla.cli.options import declare_options
    from ottla.model.errors import OttlaError

    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    declare_options(parser, CONNECTION)
    try:
        if kind == "profiles":
            from ottla.cli.profiles import profile_names

            return profile_names()
        connection, _ = parser.parse_known_args(_words(line))
        return _names_of_cluster(kind, connection)
    except (OttlaError, OSError, argparse.ArgumentError, SystemExit, BaseExceptionGroup):
        return []  # an incomplete command line is no error


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
    """Split a command line into words, even if a quotation is still open at its end."""
    for end in ("", "'", '"'):
        try:
            return shlex.split(line + end)
        except ValueError:
            continue
    return line.split()


def print_script(arguments: argparse.Namespace) -> int:
    """`ottla completion SHELL`: print the completion script of a shell. Returns the exit code."""
    from importlib.resources import files

    say_verbatim((files("ottla.cli") / "completions" / f"ottla.{arguments.verb}").read_text())
    return 0


def print_names(arguments: argparse.Namespace) -> int:
    """`ottla completion names`: print the names of topics, groups or profiles, one per line.
    Returns the exit code."""
    for name in sorted(_names(arguments.kind, arguments.line)):
        if not any(one.isspace() for one in name):
            say(name)
    return 0


VERBS = (
    *(
        verb(
            shell,
            f"print the completion script for {shell}",
            print_script,
            epilog=f"To load it: {place}",
        )
        for shell, place in SHELLS.items()
    ),
    verb(
        "names",
        "print names for the scripts, one a line; none if the cluster is not reached",
        print_names,
        option("kind", "kind of the names", choices=("topics", "groups", "profiles")),
        option(
            "--line LINE",
            "command line to complete: its options of the connection count (default: none)",
            default="",
        ),
    ),
)
