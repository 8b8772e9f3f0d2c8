"""The transaction of one Spark task: its id, and the note that marks the task's batch as committed.

All attempts at a task, including attempts in a repeated batch, have the same transactional id. A
new attempt therefore ends the open transaction of earlier attempts and fences them. Together with
its records, a transaction commits a note: an offset of the task's own group, whose value identifies
the batch. If an attempt finds the note of its batch, it writes no records. Spark's driver ends the
transactions when all tasks of a batch are done. Invariants:

- NotedIfCommitted: a task's records of a batch are committed exactly if the batch's note is.
- OneAttempt: of all attempts at a task of a batch, at most one is committed.
- NoOlderBatch: after the note of a batch, no batch with a lower number is written.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from ottla.client import (
    Committed,
    ErrorCode,
    PreparedTransaction,
    ProducerFencedError,
    ProducerTransaction,
    RefusedError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    complete_transactions,
)
from ottla.client.groups.coordinator import open_coordinator
from ottla.client.groups.group_member import Membership
from ottla.client.groups.group_offsets import fetch_offsets
from ottla.client.network.bootstrap import addresses_of
from ottla.client.network.cluster import open_cluster
from ottla.model.ids import Offset, TopicPartition
from ottla.model.settings.client import ProducerConfig
from ottla.pipeline.write.provenance import WriteId
from ottla.pipeline.write.sink_options import SinkTarget

PREFIX = "ottla-sink-"
"""Prefix of the Spark tasks' transactional ids. It differs from `spark-`, the prefix of the groups
to which reading streams commit."""
NOTE_PARTITION = 0
"""Partition in which a Spark task commits its note, an offset that marks its batch as committed.
Every topic has this partition."""


def transactional_id(target: SinkTarget, write: WriteId) -> str:
    """Return the transactional id that all attempts at a Spark task share."""
    if target.transactional_id is not None:
        return f"{target.transactional_id}-{write.partition}"
    return note_group(target, write)


def note_group(target: SinkTarget, write: WriteId) -> str:
    """Return the group whose committed offset marks a Spark task's batch as committed (the note of
    the task).

    If all rows have the same topic, the group's name contains it, because a batch may be written to
    several topics, by one write for each.
    """
    topic = target.options.topic
    return "-".join((PREFIX + write.query, *([topic] if topic else []), str(write.partition)))


def is_noted(next_batch: int | None, write: WriteId) -> bool:
    """Return whether a Spark task's batch is already committed. `next_batch` is the offset in the
    task's note, or None if there is no note.

    Raises RefusedError if a later batch is committed.
    """
    if next_batch is None or next_batch <= write.batch:
        return False
    if next_batch > write.batch + 1:
        raise RefusedError(
            ErrorCode.INVALID_TXN_STATE,
            f"batch {write.batch} of {write.query} comes after batch {next_batch - 1}, which task "
            f"{write.partition} has committed: an older checkpoint or txnVersion was used again",
        )
    return True


@asynccontextmanager
async def open_notes(
    target: SinkTarget, config: ProducerConfig, write: WriteId
) -> AsyncIterator[Callable[[bool], Awaitable[bool]]]:
    """Yield a function that reads a Spark task's note (its group's committed offset) and returns
    whether the task's batch is committed.

    If its argument is True, the function first waits until no transaction of the task is open.
    """
    timeout_s, group = config.request_timeout_ms / 1_000, note_group(target, write)
    async with (
        open_cluster(
            addresses_of(target.bootstrap),
            client_id=config.client_id,
            request_timeout_s=timeout_s,
            login=config.login(),
            tls=config.tls(),
        ) as cluster,
        open_coordinator(cluster, group, client_id=config.client_id) as coordinator,
    ):

        async def is_committed(is_stable: bool, /) -> bool:
            async def attempt() -> int | None:
                found = await fetch_offsets(
                    coordinator, None, timeout_s=timeout_s, require_stable=is_stable
                )
                return max((int(one.offset) for one in found.values()), default=None)

            next_batch = await coordinator.until_it_answers(attempt, config.block_ms_max / 1_000)
            return is_noted(next_batch, write)

        yield is_committed


async def note(
    transaction: ProducerTransaction,
    target: SinkTarget,
    write: WriteId,
    *,
    topic: str,
    record_count: int,
) -> None:
    """Add the note of a Spark task, an offset that marks the task's batch as committed, to the
    transaction."""
    said = Committed(
        Offset(write.batch + 1), metadata=f"batch {write.batch}: {record_count} records"
    )
    await transaction.send_offsets(
        {TopicPartition(topic, NOTE_PARTITION): said},
        Membership(group_id=note_group(target, write)),
    )


async def end_transactions(
    target: SinkTarget, prepared: Sequence[PreparedTransaction], *, is_commit: bool
) -> None:
    """Commit or abort the prepared transactions of a batch's Spark tasks."""
    try:
        await complete_transactions(
            target.bootstrap, prepared, target.producer_config(), is_commit=is_commit
        )
    except TransactionOutcomeUnknownError as error:
        raise RefusedError(
            error.code,
            f"nothing says if the batch is committed: {error.message}; written again under its "
            "name it is there once",
        ) from error
    except (ProducerFencedError, TransactionAbortedError) as error:
        timeout_ms = target.producer_config().transaction_timeout_ms
        raise RefusedError(
            error.code,
            f"the batch is not committed, or only in part: {error.message}; either another attempt "
            "at the task began, as speculation does, or the batch took longer than "
            f"kafka.transaction.timeout.ms, {timeout_ms}",
        ) from error
