"""`ottla version`."""

import argparse

from ottla.cli.common import add_format_argument, print_json
from ottla.cli.terminal import say
from ottla.model.compiled import installed_form
from ottla.model.version import VERSION


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_format_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the version, and whether the hot modules are compiled."""
    form = installed_form()
    if arguments.format == "json":
        print_json({"version": VERSION, "form": form})
    else:
        say(f"{VERSION} ({form})")
    return 0
