"""`ottla tier`: commands about the copies of segments in an object store. Only `status` and
`offload` need a running cluster."""

import argparse
from importlib import import_module

from ottla.cli.common import FORMAT
from ottla.cli.confirmation import CONFIRMATION
from ottla.cli.options import one_of, option
from ottla.cli.tier.request_costs import (
    DOLLARS_PER_1000_GETS,
    DOLLARS_PER_1000_PUTS,
    DOLLARS_PER_GIB_MONTH,
)
from ottla.cli.tier.store_options import STORE
from ottla.cli.verbs import Handler, admin_verb, verb

PRICES = (
    option(
        "--storage-price PRICE",
        "price of a GiB for a month (default: %(default)g)",
        type=float,
        default=DOLLARS_PER_GIB_MONTH,
    ),
    option(
        "--put-price PRICE",
        "price of 1000 requests that write (default: %(default)g)",
        type=float,
        default=DOLLARS_PER_1000_PUTS,
    ),
    option(
        "--get-price PRICE",
        "price of 1000 requests that read (default: %(default)g)",
        type=float,
        default=DOLLARS_PER_1000_GETS,
    ),
)

PARTITION = option("partition PARTITION", "partition, such as orders:0")


def _later(module: str) -> Handler:
    """Return a handler that imports the command's module when it is called."""

    def run(arguments: argparse.Namespace) -> int:
        code: int = import_module(f"ottla.cli.tier.{module}").run(arguments)
        return code

    return run


VERBS = (
    admin_verb(
        "status",
        "show how far the topics of a running cluster are copied",
        "ottla.cli.tier.tier_status:status",
        option("topic TOPIC", "topic (default: all that are tiered)", nargs="*"),
    ),
    admin_verb(
        "offload",
        "delete the brokers' local copies of segments that the object store has, now",
        "ottla.cli.tier.tier_offload:offload",
        option("names TOPIC[:PARTITION]", "topics or partitions", nargs="+"),
        option("--broker ID", "only the replicas on this broker (default: on all)", type=int),
        option("--dry-run", "show what would be deleted, and delete nothing"),
    ),
    verb("topics", "list the topics in the bucket", _later("tier_topics"), *STORE, FORMAT),
    verb(
        "verify",
        "check that the segments in the bucket are complete",
        _later("tier_verify"),
        option("--topic NAME ...", "topic to check; may be repeated (default: all)"),
        option("--full", "also read all records and indexes, and compare their CRCs"),
        *STORE,
        FORMAT,
    ),
    verb(
        "explain",
        "show which segment has which records of a partition",
        _later("tier_explain"),
        PARTITION,
        *STORE,
        FORMAT,
    ),
    verb(
        "fetch",
        "download segments of a partition as files, for 'ottla log dump'",
        _later("tier_fetch"),
        PARTITION,
        option("--into DIR", "directory in which one for the partition is made", required=True),
        option(
            "--start-offset OFFSET",
            "fetch segments from the one with this offset on (default: all)",
            type=int,
            default=0,
        ),
        option(
            "--end-offset OFFSET",
            "fetch segments that begin before this offset (default: all)",
            type=int,
        ),
        *STORE,
        FORMAT,
    ),
    verb(
        "restore",
        "make a new cluster on this machine with the topics in the bucket",
        _later("tier_restore"),
        one_of(
            option("--into DIR", "new directory for a local cluster"),
            option(
                "--node FILE ...",
                "settings file of a formatted node on this machine, in place of a local cluster; "
                "may be repeated. Run the command on each machine",
            ),
            required=True,
        ),
        option("--broker-ids ID,...", "all brokers of the new cluster, with --node"),
        option("--topic NAME ...", "topic to restore; may be repeated (default: all)"),
        option("--allow-missing", "restore a partition that lacks segments from its last gap on"),
        option(
            "--in-place",
            "leave the records in the bucket, which the new cluster takes over with the cluster's "
            "id (default: copy all records to this machine)",
        ),
        option(
            "--old-cluster-is-gone",
            "restore although the cluster of the bucket may be in use: it was alive in the last "
            "10 minutes, or has uploaded within the last hour and has no heartbeat. Clients then "
            "find two clusters with the same topics",
        ),
        option("--without-group-offsets", "restore no committed offsets of groups"),
        option("--controllers N", "number of controllers (default: 1)", type=int),
        option("--brokers N", "number of brokers (default: 1)", type=int),
        option(
            "--replication-factor N",
            "replicas of each partition (default: 3, or one on each broker if there are fewer)",
            type=int,
        ),
        option("--host HOST", "address to listen on", default="localhost"),
        option(
            "--port PORT",
            "port of the first broker; 0 for a free one (default: 9092)",
            type=int,
        ),
        CONFIRMATION,
        *STORE,
        FORMAT,
    ),
    verb(
        "cost",
        "show what the segments in the bucket cost",
        _later("tier_cost"),
        *PRICES,
        *STORE,
        FORMAT,
    ),
)
