"""`ottla broker logdirs`: shows the log directories of brokers, as each broker reports them
(DescribeLogDirs)."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import trio

from ottla.cli.common import print_json
from ottla.cli.options import option
from ottla.cli.tables import ByteCount, print_table
from ottla.cli.verbs import admin_verb
from ottla.client.admin_parts.admin_brokers import BrokerCalls, LogDirDescription
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.ids import NodeId, TopicPartition

BROKER_TIMEOUT_S = 10.0
"""Maximum wait, in seconds, for one broker. A broker with a hundred thousand replicas responds
within a second."""

LIST_TIMEOUT_S = 3.0
"""Maximum wait, in seconds, for one broker in commands that list brokers or topics. If a broker
hangs, the sizes from the other brokers are shown."""

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


@dataclass(slots=True)
class BrokerDirectories:
    """Log directories of one broker, or the reason why they are unknown."""

    broker: NodeId
    failure: str = ""
    directories: list[LogDirDescription] = field(default_factory=list)

    @property
    def size_bytes(self) -> int | None:
        """Size of all replicas of the broker in bytes, or None if unknown."""
        if self.failure:
            return None
        replicas = (one for directory in self.directories for one in directory.replicas.values())
        return sum(replica.size_bytes for replica in replicas)


async def ask(
    admin: BrokerCalls,
    brokers: Sequence[NodeId] = (),
    partitions: Iterable[TopicPartition] | None = None,
    *,
    timeout_s: float = BROKER_TIMEOUT_S,
) -> list[BrokerDirectories]:
    """Describe the log directories of the given brokers, or of all brokers, concurrently. If a
    broker does not respond, the responses of the other brokers are still returned.

    Raises RefusedError if a broker does not belong to the cluster.
    """
    present = sorted(one.node for one in (await admin.describe_cluster(has_fenced=True)).brokers)
    for broker in brokers:
        if broker not in present:
            raise RefusedError(
                ErrorCode.BROKER_ID_NOT_REGISTERED,
                f"there is no broker {broker} in this cluster; see 'ottla broker list'",
            )
    wanted = None if partitions is None else list(partitions)
    found = [BrokerDirectories(broker) for broker in brokers or present]
    async with trio.open_nursery() as nursery:
        for one in found:
            nursery.start_soon(_ask_one, admin, one, wanted, timeout_s)
    return found


async def ask_bytes(admin: BrokerCalls) -> list[BrokerDirectories]:
    """Return the log directories of all brokers, as `ask` does, with timeout LIST_TIMEOUT_S."""
    return await ask(admin, timeout_s=LIST_TIMEOUT_S)


async def _ask_one(
    admin: BrokerCalls,
    one: BrokerDirectories,
    partitions: list[TopicPartition] | None,
    timeout_s: float,
) -> None:
    try:
        with trio.fail_after(timeout_s):
            one.directories = await admin.describe_log_dirs(one.broker, partitions)
    except trio.TooSlowError:
        one.failure = f"no answer in {timeout_s:g} s"
    except OttlaError as error:
        one.failure = str(error)


async def log_dirs(admin: BrokerCalls, arguments: argparse.Namespace) -> int:
    """Show each log directory, or with --replicas the replicas in it. Returns the exit code."""
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
