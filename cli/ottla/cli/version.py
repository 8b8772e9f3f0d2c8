"""`ottla version`."""

import argparse
from importlib.metadata import version


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare nothing: the command has no arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Print the version."""
    print(version("ottla"))
    return 0
