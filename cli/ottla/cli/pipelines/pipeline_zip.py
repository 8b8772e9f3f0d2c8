"""`ottla pipeline zip`: our modules as a file for spark-submit, where Ottla is not installed."""

import argparse
from pathlib import Path

from ottla.cli.terminal import say
from ottla.pipeline.run.package_zip import NAME, make_package_zip


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "file", nargs="?", default=NAME, metavar="FILE", help=f"file to write (default: {NAME})"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the zip and say how to use it."""
    path = make_package_zip(Path(arguments.file))
    say(f"{path}: give it to spark-submit as --py-files, with what Ottla is built on in --archives")
    return 0
