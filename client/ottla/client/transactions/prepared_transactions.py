"""Transactions that one process prepares and another process completes.

All records and offsets of a prepared transaction are stored at the brokers, and the transaction is
still open. It is aborted if it is not completed within its `transaction.timeout.ms`, or if another
producer with its transactional id is opened. Any process can complete the transaction with the
object that `prepare` returns.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import trio

from ottla.client.network.bootstrap import addresses_of
from ottla.client.network.cluster import Cluster, open_cluster
from ottla.client.produce.accumulator import ProducerIdentity
from ottla.client.transactions.coordinator_calls import CoordinatorAnswer, CoordinatorCalls
from ottla.client.transactions.transaction_flow import (
    ProducerFencedError,
    ResponseMeaning,
    TransactionAbortedError,
    TransactionFlow,
    TransactionOutcomeUnknownError,
    TransactionProtocol,
)
from ottla.model.errors import RefusedError
from ottla.model.settings.client import ProducerConfig

AT_ONCE = 16
"""Maximum number of transactions that are completed at the same time, each over its own connection.
With a smaller number, many transactions take longer. With a larger number, many connections are
opened at once."""


class PreparedTransaction(NamedTuple):
    """Description of a prepared transaction. Another process needs this object to complete the
    transaction. The object can be pickled."""

    transactional_id: str
    """The `transactional.id` of the producer that has prepared the transaction."""
    identity: ProducerIdentity
    """Producer id and producer epoch of the transaction."""
    protocol: TransactionProtocol
    """Protocol by which partitions were added to the transaction."""


async def complete_transactions(
    bootstrap: str | Iterable[str | tuple[str, int]],
    prepared: Sequence[PreparedTransaction],
    config: ProducerConfig | None = None,
    *,
    is_commit: bool,
) -> None:
    """Commit or abort prepared transactions. The call is idempotent.

    The transactions are independent of each other. The call completes as many of them as possible,
    and then raises the first error. A commit raises TransactionAbortedError or ProducerFencedError
    if a later producer with the transactional id, or the timeout, has aborted the transaction. It
    raises TransactionOutcomeUnknownError if the coordinator does not respond within `max.block.ms`.
    An abort raises RefusedError if the coordinator does not respond.
    """
    config = config or ProducerConfig()
    limiter = trio.CapacityLimiter(AT_ONCE)
    errors: dict[int, RefusedError] = {}

    async def complete(number: int) -> None:
        async with limiter:
            try:
                await _complete(cluster, config, prepared[number], is_commit=is_commit)
            except RefusedError as error:
                errors[number] = error

    async with (
        open_cluster(addresses_of(bootstrap), config) as cluster,
        trio.open_nursery() as nursery,
    ):
        for number in range(len(prepared)):
            nursery.start_soon(complete, number)
    if errors:
        raise errors[min(errors)]


async def _complete(
    cluster: Cluster, config: ProducerConfig, prepared: PreparedTransaction, *, is_commit: bool
) -> None:
    flow = TransactionFlow()
    flow.take_over(prepared.identity, prepared.protocol)
    if is_commit:
        flow.begin_commit()
    else:
        flow.begin_abort()
    calls = CoordinatorCalls(cluster, config, flow, prepared.transactional_id)
    try:
        answer = await calls.end(
            trio.current_time() + config.block_ms_max / 1_000, is_commit=is_commit
        )
    finally:
        await calls.coordinator.forget()
    error = _commit_error(flow, answer) if is_commit else _abort_error(answer)
    if error is not None:
        name = f"transactional id {prepared.transactional_id!r}"
        raise error(answer.code, f"{name}: {answer.why}")


def _commit_error(flow: TransactionFlow, answer: CoordinatorAnswer) -> type[RefusedError] | None:
    verdict = flow.commit_verdict(answer.verdict)
    if verdict is ResponseMeaning.DONE:
        return None
    if verdict is ResponseMeaning.ABORT:
        return TransactionAbortedError
    if verdict is ResponseMeaning.FENCED:
        return ProducerFencedError
    return TransactionOutcomeUnknownError


def _abort_error(answer: CoordinatorAnswer) -> type[RefusedError] | None:
    """Return the class of the error to raise for the response to an abort, or None if the abort was
    successful.

    A transaction that is no longer open is not an error, because another process has completed it.
    """
    ended = ResponseMeaning.DONE, ResponseMeaning.IDENTIFY, ResponseMeaning.FENCED
    return None if answer.verdict in ended else RefusedError
