"""`ottla log`: looks into log directories without a broker, checks them, and recovers them.

All verbs read only, but `recover --yes`.
"""

import argparse

from ottla.cli.logs import log_dump, log_recover, log_verify


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs of 'ottla log'."""
    verbs = parser.add_subparsers(dest="log_command", metavar="COMMAND", required=True)
    log_dump.configure(verbs)
    log_verify.configure(verbs)
    log_recover.configure(verbs)


def run(arguments: argparse.Namespace) -> int:
    """Run one verb."""
    if arguments.log_command == "verify":
        return log_verify.run(arguments)
    if arguments.log_command == "recover":
        return log_recover.run(arguments)
    return log_dump.run(arguments)
