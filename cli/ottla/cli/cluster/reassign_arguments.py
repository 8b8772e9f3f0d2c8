"""The options of `ottla topic reassign`: apart, since all verbs of topics are declared at once."""

import argparse
from typing import Any


def configure_reassign(verbs: Any) -> argparse.ArgumentParser:
    """Declare the verb; return its parser."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        "reassign",
        help="move replicas to other brokers or log directories; without --execute only show how",
        description="Without --brokers, --evacuate, --plan, --log-dir, --cancel or --verify it "
        "shows what moves between brokers now. A throttle must be above what is produced to the "
        "replicas that move, or they never catch up.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="names of topics (default: all)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--brokers", metavar="ID,ID,…", help="brokers to spread the topics over, with few moves"
    )
    what.add_argument(
        "--evacuate", type=int, metavar="ID", help="broker to move every replica away from"
    )
    what.add_argument(
        "--plan", metavar="FILE", help="file with a plan, as of --save or kafka-reassign-partitions"
    )
    what.add_argument(
        "--cancel",
        action="store_true",
        help="cancel ongoing reassignments and restore the previous replicas",
    )
    what.add_argument(
        "--verify",
        action="store_true",
        help="show ongoing reassignments, and remove throttles that none of them needs",
    )
    what.add_argument(
        "--log-dir",
        action="append",
        metavar="[ID:]PATH",
        help="log directory to move replicas into; may be repeated (default: on each broker that "
        "has it)",
    )
    parser.add_argument(
        "-r",
        "--replicas",
        type=int,
        metavar="COUNT",
        help="with --brokers: number of replicas of a partition (default: as before)",
    )
    parser.add_argument(
        "--execute", action="store_true", help="make the changes (default: show them)"
    )
    parser.add_argument("--save", metavar="FILE", help="file to write the plan to, for --plan")
    parser.add_argument(
        "--watch",
        action="store_true",
        help="show progress until every reassignment is complete, as --execute does",
    )
    _add_throttle_arguments(parser)
    parser.add_argument(
        "--no-wait", action="store_true", help="return when the reassignments have started"
    )
    return parser


def _add_throttle_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--throttle",
        metavar="RATE",
        help="with --execute: limit in bytes per second to and from each broker, such as "
        "20M, removed at the end; without a plan it applies to ongoing reassignments "
        "(default: none)",
    )
    parser.add_argument(
        "--log-dir-throttle",
        "--replica-alter-log-dirs-throttle",
        metavar="RATE",
        help="with --log-dir and --execute: limit in bytes per second on each broker "
        "(default: none)",
    )
