"""`ottla version`: prints the version of Ottla."""

import argparse

from ottla.cli.common import FORMAT, print_json
from ottla.cli.options import Declared
from ottla.cli.terminal import say
from ottla.model.compiled import installed_form
from ottla.model.version import VERSION

OPTIONS: tuple[Declared, ...] = (FORMAT,)


def run(arguments: argparse.Namespace) -> int:
    """`ottla version`: print the version, and whether the modules with the largest effect on speed
    are compiled. Returns the exit code."""
    form = installed_form()
    if arguments.format == "json":
        print_json({"version": VERSION, "form": form})
    else:
        say(f"{VERSION} ({form})")
    return 0
