"""`ottla version`."""

import argparse
from importlib.metadata import version

from ottla.cli.terminal import say


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare nothing: the command has no arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Print the version."""
    say(version("ottla"))
    return 0
