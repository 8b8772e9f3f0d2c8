"""`ottla produce`: writes records from standard input, one per line, as kcat does.

An empty line is an empty record, as in Kafka's console producer; kcat skips such lines.
"""

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

import trio

from ottla.cli.common import CONNECTION, bootstrap_of, counted, run_async
from ottla.cli.options import Declared, option
from ottla.cli.suggestions import did_you_mean
from ottla.cli.terminal import note
from ottla.client.network.cluster import Cluster, open_cluster, raise_for
from ottla.client.produce.partitioner import partition_of
from ottla.client.producer import open_producer
from ottla.model.errors import ConfigError, ErrorCode, RefusedError, row_of
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ProducerConfig
from ottla.wire.apis import PRODUCE_TOPIC_IDS_FROM
from ottla.wire.batch_builder import RecordToBuild, build_batch
from ottla.wire.compression import Codec
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import ProduceResponse

BATCH_RECORDS_MAX = 1_000
BATCH_BYTES_MAX = 512 << 10
"""Maximum size, in bytes, of a record batch that the command sends. It is below the broker's
default max.message.bytes, and leaves space for keys, headers and batch overhead."""
PRODUCE_BY_NAME_VERSION = PRODUCE_TOPIC_IDS_FROM - 1
RETRY_WAIT_S = 0.1
ATTEMPTS = 50


OPTIONS: tuple[Declared, ...] = (
    *CONNECTION,
    option("topic TOPIC", "name of the topic"),
    option(
        "-p --partition PARTITION",
        "number of the partition (default: by key, else spread)",
        type=int,
    ),
    option(
        "-K --key-delimiter DELIMITER", "separator of key and value on a line (default: no keys)"
    ),
    option("-k --key KEY", "key of every record (default: none)"),
    option("-H --header NAME=VALUE ...", "header of every record; may be repeated"),
    option("-Z --null", "write an empty value or key as null (a tombstone)"),
    option(
        "-z --codec",
        "compression of the batches (default: none)",
        choices=[codec.name.lower() for codec in Codec],
        default="none",
    ),
    option(
        "--acks",
        "replicas that acknowledge a record: the leader, or all in sync (default: %(default)s)",
        choices=("1", "all"),
        default="all",
    ),
    option("--create", "create the topic if it does not exist"),
    option(
        "--transactional-id ID",
        "transactional id: one transaction, committed at the end of the input, aborted at an error "
        "or Ctrl-C (default: no transaction)",
    ),
)


def run(arguments: argparse.Namespace) -> int:
    """`ottla produce`: write a record for each line of standard input. Each batch is acknowledged
    before the next is sent. Returns the exit code."""
    headers = tuple(_header(text) for text in arguments.header)
    if arguments.transactional_id is not None:
        return run_async(partial(_write_in_transaction, arguments, headers))

    async def body() -> int:
        async with open_cluster(bootstrap_of(arguments)) as cluster:
            may_create = await _may_create(cluster, arguments)
            partitions = await cluster.partitions_of(arguments.topic, may_create=may_create)
            _check_partition(arguments, partitions)
            count = 0
            for turn, lines in enumerate(_chunks()):
                found = _sorted(
                    lines,
                    arguments,
                    headers,
                    partitions,
                    keyless=_keyless(cluster, arguments, turn),
                )
                await _write(cluster, arguments, found)
                count += len(lines)
            note(f"{counted(count, 'record')} written to {arguments.topic}")
            return 0

    return run_async(body)


async def _write_in_transaction(
    arguments: argparse.Namespace, headers: tuple[tuple[str, bytes | None], ...]
) -> int:
    """Write a record for each line of standard input in one transaction, which is committed at the
    end of the input. Returns the exit code."""
    if arguments.acks != "all":
        raise ConfigError("--acks", f"is {arguments.acks}; a transaction needs all")
    config = ProducerConfig(
        transactional_id=arguments.transactional_id, compression_type=arguments.codec
    )
    topic, count = arguments.topic, 0
    async with open_cluster(bootstrap_of(arguments)) as cluster:
        await _may_create(cluster, arguments)
    async with open_producer(bootstrap_of(arguments), config) as producer:
        _check_partition(arguments, await producer.partitions_of(topic))
        async with producer.transaction():
            lots = _chunks()
            end: list[bytes] = []
            # A thread waits for input, so that the event loop can send earlier lines at the same
            # time.
            while lines := await trio.to_thread.run_sync(next, lots, end, abandon_on_cancel=True):
                for line in lines:
                    key, value = _split(line, arguments)
                    await producer.send(
                        topic, value, key=key, partition=arguments.partition, headers=headers
                    )
                count += len(lines)
    note(f"{counted(count, 'record')} written to {topic} in one transaction")
    return 0


async def _may_create(cluster: Cluster, arguments: argparse.Namespace) -> bool:
    """Return whether the command may create the topic if it does not exist. If the command runs on
    a terminal, the user is asked.

    Raises RefusedError if the topic does not exist and may not be created, because its name may be
    misspelt.
    """
    if arguments.create:
        return True
    topic: str = arguments.topic
    found = (await cluster.metadata([topic])).topics
    if found and found[0].error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return False
    names = [one.name or "" for one in (await cluster.metadata()).topics]
    cure = did_you_mean(topic, names)
    if sys.stdin.isatty() and sys.stderr.isatty():
        note(f"there is no topic {topic!r}{cure}")
        note("create it? [y/N]")
        said = await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        if said.strip().lower() in ("y", "yes"):
            return True
    raise RefusedError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"there is no topic {topic!r}{cure}; create it with 'ottla topic create {topic}', "
        "or here with --create",
    )


def _check_partition(arguments: argparse.Namespace, partitions: Sequence[int]) -> None:
    if arguments.partition is not None and arguments.partition not in partitions:
        raise ConfigError(
            "--partition", f"is {arguments.partition}; the topic has 0 to {partitions[-1]}"
        )


def _chunks() -> Iterator[list[bytes]]:
    """Yield the available lines of standard input, in chunks of bounded size."""
    lines: list[bytes] = []
    size = 0
    for line in sys.stdin.buffer:
        text = line.removesuffix(b"\n")
        if lines and (len(lines) >= BATCH_RECORDS_MAX or size + len(text) > BATCH_BYTES_MAX):
            yield lines
            lines, size = [], 0
        lines.append(text)
        size += len(text)
        if sys.stdin.isatty():
            yield lines
            lines, size = [], 0
    if lines:
        yield lines


def _keyless(cluster: Cluster, arguments: argparse.Namespace, turn: int) -> int:
    """Return the partition for records without a key in the input chunk with the number `turn`.
    Partitions without a leader are used only if no partition has a leader."""
    known = cluster.topics[arguments.topic]
    available = known.available or known.partitions
    return available[turn % len(available)]


def _sorted(
    lines: list[bytes],
    arguments: argparse.Namespace,
    headers: tuple[tuple[str, bytes | None], ...],
    partitions: list[int],
    *,
    keyless: int,
) -> dict[int, list[RecordToBuild]]:
    """Return the records for the lines of standard input, by partition. The hash of a record's key
    determines its partition. Records without a key are written to the partition `keyless`."""
    now_ms = time.time_ns() // 1_000_000
    found: dict[int, list[RecordToBuild]] = defaultdict(list)
    for line in lines:
        key, value = _split(line, arguments)
        if arguments.partition is not None:
            partition = arguments.partition
        elif key is not None:
            partition = partition_of(key, len(partitions))
        else:
            partition = keyless
        found[partition].append(RecordToBuild(now_ms, key, value, headers))
    return found


def _split(line: bytes, arguments: argparse.Namespace) -> tuple[bytes | None, bytes | None]:
    """Return the key and the value of a record from an input line. Each of them may be None."""
    delimiter = arguments.key_delimiter.encode() if arguments.key_delimiter else None
    key: bytes | None = arguments.key.encode() if arguments.key else None
    value: bytes | None = line
    if delimiter and delimiter in line:
        key, _, value = line.partition(delimiter)
    if arguments.null:
        key, value = key or None, value or None
    return key, value


async def _write(
    cluster: Cluster, arguments: argparse.Namespace, found: dict[int, list[RecordToBuild]]
) -> None:
    codec = Codec[arguments.codec.upper()]
    for partition, records in found.items():
        batch = build_batch(records, codec=codec)
        request = ProduceRequest(
            acks=-1 if arguments.acks == "all" else 1,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(
                    name=arguments.topic,
                    partition_data=[PartitionProduceData(index=partition, records=batch)],
                )
            ],
        )
        await _send(cluster, TopicPartition(arguments.topic, partition), request)


async def _send(cluster: Cluster, partition: TopicPartition, request: ProduceRequest) -> None:
    for attempt in range(ATTEMPTS):
        leader = await cluster.leader_of(partition)
        answer = await cluster.request(
            request, ProduceResponse, node=leader, version=PRODUCE_BY_NAME_VERSION
        )
        found = answer.responses[0].partition_responses[0]
        if not row_of(found.error_code).is_retriable or attempt == ATTEMPTS - 1:
            raise_for(found.error_code, found.error_message)
            return
        cluster.forget_leaders()
        await trio.sleep(RETRY_WAIT_S)


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    return name, value.encode() if equals else None
