"""`ottla broker logdirs`: the log directories of brokers, as each says (DescribeLogDirs)."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import trio

from ottla.cli.common import print_json, print_table
from ottla.client.admin_parts.admin_brokers import BrokerCalls, LogDirDescription
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.ids import NodeId, TopicPartition

BROKER_TIMEOUT_S = 10.0
"""A broker with a hundred thousand replicas answers in a second."""

LIST_TIMEOUT_S = 3.0
"""A list of brokers or topics waits no longer for one that hangs; the others' bytes are shown."""

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
    """A broker's log directories, or why they are not known."""

    broker: NodeId
    failure: str = ""
    directories: list[LogDirDescription] = field(default_factory=list)

    @property
    def size_bytes(self) -> int | None:
        """Bytes of all replicas there; None where they are not known."""
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
    """Ask brokers, or all of them, at once; one that does not answer costs its own answer alone.

    Raises RefusedError if a broker is not one of the cluster.
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
    """Ask all brokers for what they hold, for a list that has more to show than that."""
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


def configure_log_dirs(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]",
) -> argparse.ArgumentParser:
    """Declare the verb."""
    parser = verbs.add_parser("logdirs", help="show the log directories of brokers")
    parser.add_argument(
        "ids", type=int, nargs="*", metavar="ID", help="node.id of a broker (default: all)"
    )
    parser.add_argument("--replicas", action="store_true", help="show each replica too")
    return parser


async def log_dirs(admin: BrokerCalls, arguments: argparse.Namespace) -> int:
    """Show each directory, or with --replicas what lies in it."""
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
            directory.total_bytes,
            directory.usable_bytes,
            len(present),
            sum(replica.size_bytes for replica in replicas),
            max((replica.offset_lag for replica in replicas), default=0),
            len(replicas) - len(present),
        )


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
                replica.size_bytes,
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
