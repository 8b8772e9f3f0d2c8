"""`ottla broker logdirs`: shows the log directories of brokers, as each broker reports them
(DescribeLogDirs)."""

import argparse
from collections.abc import Iterator
from typing import Any

from ottla.cli.common import print_json
from ottla.cli.options import option
from ottla.cli.tables import ByteCount, print_table
from ottla.cli.verbs import admin_verb
from ottla.client.admin_parts.admin_brokers import BrokerCalls, LogDirDescription
from ottla.insight.facts.log_dirs_driver import BrokerDirectories, ask
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId

DIRECTORY_COLUMNS = (
    "BROKER",
    "DIRECTORY",
    "STATE",
    "TOTAL",
    "USABLE",
    "PARTITIONS",
    "BYTES",
    "LAG",
    "FUTURE",
)
REPLICA_COLUMNS = ("BROKER", "DIRECTORY", "TOPIC", "PARTITION", "BYTES", "LAG", "FUTURE")


async def log_dirs(admin: BrokerCalls, arguments: argparse.Namespace) -> int:
    """`ottla broker logdirs`: show each log directory of brokers or, with --replicas, the replicas
    in it. Returns the exit code."""
    found = await ask(admin, [NodeId(broker) for broker in arguments.ids])
    if arguments.format == "json":
        print_json([_as_json(one) for one in found])
    elif arguments.replicas:
        print_table(REPLICA_COLUMNS, (row for one in found for row in _replica_rows(one)))
    else:
        print_table(DIRECTORY_COLUMNS, (row for one in found for row in _directory_rows(one)))
    return 0


def _state(directory: LogDirDescription) -> str:
    if directory.error is not ErrorCode.NONE:
        return "offline"
    return "cordoned" if directory.is_cordoned else "online"


def _directory_rows(one: BrokerDirectories) -> Iterator[tuple[object, ...]]:
    if one.failure:
        yield (one.broker, None, one.failure, *[None] * (len(DIRECTORY_COLUMNS) - 3))
    for directory in one.directories:
        replicas = directory.replicas.values()
        present = [replica for replica in replicas if not replica.is_future]
        yield (
            one.broker,
            directory.path,
            _state(directory),
            _size(directory.total_bytes),
            _size(directory.usable_bytes),
            len(present),
            ByteCount(sum(replica.size_bytes for replica in replicas)),
            max((replica.offset_lag for replica in replicas), default=0),
            len(replicas) - len(present),
        )


def _size(size_bytes: int | None) -> ByteCount | None:
    return None if size_bytes is None else ByteCount(size_bytes)


def _replica_rows(one: BrokerDirectories) -> Iterator[tuple[object, ...]]:
    if one.failure:
        yield (one.broker, one.failure, *[None] * (len(REPLICA_COLUMNS) - 2))
    for directory in one.directories:
        for partition, replica in sorted(directory.replicas.items()):
            future = "future" if replica.is_future else None
            yield (
                one.broker,
                directory.path,
                *partition,
                ByteCount(replica.size_bytes),
                replica.offset_lag,
                future,
            )


def _as_json(one: BrokerDirectories) -> dict[str, Any]:
    return {
        "broker": one.broker,
        "failure": one.failure,
        "directories": [
            {
                "directory": directory.path,
                "state": _state(directory),
                "error": directory.error.name,
                "total_bytes": directory.total_bytes,
                "usable_bytes": directory.usable_bytes,
                "replicas": [
                    {**partition._asdict(), **replica._asdict()}
                    for partition, replica in sorted(directory.replicas.items())
                ],
            }
            for directory in one.directories
        ],
    }


LOG_DIRS = admin_verb(
    "logdirs",
    "show the log directories of brokers",
    log_dirs,
    option("ids ID", "node.id of a broker (default: all)", type=int, nargs="*"),
    option("--replicas", "show each replica too"),
)
