"""`ottla pipeline zip`: writes Ottla's modules to a zip file for spark-submit on machines without
Ottla."""

import argparse
from pathlib import Path

from ottla.cli.options import Declared, option
from ottla.cli.terminal import say
from ottla.pipeline.run.package_zip import NAME, make_package_zip

OPTIONS: tuple[Declared, ...] = (
    option("file FILE", f"file to write (default: {NAME})", nargs="?", default=NAME),
)


def run(arguments: argparse.Namespace) -> int:
    """`ottla pipeline zip`: write the zip file of Ottla's modules and print instructions for its
    use. Returns the exit code."""
    path = make_package_zip(Path(arguments.file))
    say(f"{path}: give it to spark-submit as --py-files, with what Ottla is built on in --archives")
    return 0
