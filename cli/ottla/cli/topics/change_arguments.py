"""The options of what changes topics and settings, and of `ottla topic storage`."""

import argparse
from typing import Any


def configure_changes(verbs: Any) -> list[argparse.ArgumentParser]:
    """Declare the verbs; return their parsers."""
    alter_ = verbs.add_parser("alter", help="change settings of topics")
    alter_.add_argument("names", nargs="+", metavar="NAME", help="name of a topic")
    alter_.add_argument(
        "-c",
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting; KEY+=VALUE and KEY-=VALUE change a list; may be repeated",
    )
    add_change_arguments(alter_)
    add = verbs.add_parser("add-partitions", help="add partitions to topics")
    add.add_argument("names", nargs="+", metavar="NAME", help="name of a topic")
    count = add.add_mutually_exclusive_group(required=True)
    count.add_argument("--by", type=int, metavar="COUNT", help="number of partitions to add")
    count.add_argument("--to", type=int, metavar="COUNT", help="number of partitions afterwards")
    add_dry_run_argument(add)
    trim_ = verbs.add_parser("trim", help="delete the oldest records")
    trim_.add_argument("name", metavar="NAME", help="name of the topic")
    _add_partition_argument(trim_)
    upto = trim_.add_mutually_exclusive_group(required=True)
    upto.add_argument(
        "--before", type=int, metavar="OFFSET", help="offset of the first record to keep"
    )
    upto.add_argument(
        "--before-time",
        metavar="TIME",
        help="time of the first record to keep: 2026-07-31T12:00, or a duration before now "
        "such as 36h",
    )
    upto.add_argument("--all", action="store_true", help="delete all committed records")
    add_dry_run_argument(trim_)
    elect_ = verbs.add_parser("elect", help="give leadership to each partition's first replica")
    elect_.add_argument("names", nargs="*", metavar="NAME", help="names of topics (default: all)")
    _add_partition_argument(elect_)
    elect_.add_argument(
        "--unclean",
        action="store_true",
        help="elect the replica that lacks least where there is no leader, and show what each "
        "candidate lacks; acknowledged records may be lost",
    )
    elect_.add_argument(
        "--yes",
        action="store_true",
        help="hold the unclean election (default: show the candidates)",
    )
    add_dry_run_argument(elect_)
    return [alter_, add, trim_, elect_]


def configure_storage(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> argparse.ArgumentParser:
    """Declare the verb."""
    parser = verbs.add_parser("storage", help="show the bytes of a topic's replicas")
    parser.add_argument("name", metavar="NAME", help="name of the topic")
    return parser


def add_change_arguments(parser: argparse.ArgumentParser, metavar: str = "KEY=VALUE") -> None:
    """Add --unset and --dry-run."""
    parser.add_argument(
        "--unset",
        action="append",
        default=[],
        metavar="KEY",
        help="remove a setting, so that the inherited value applies; may be repeated",
    )
    add_dry_run_argument(parser)


def add_dry_run_argument(parser: argparse.ArgumentParser) -> None:
    """Add --dry-run."""
    parser.add_argument(
        "--dry-run", action="store_true", help="validate and show the changes without making them"
    )


def _add_partition_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-p",
        "--partition",
        type=int,
        action="append",
        default=[],
        metavar="NUMBER",
        help="number of a partition; may be repeated (default: all)",
    )
