"""Transactions that one process prepares and another one ends.

A prepared transaction has all its records and offsets at the brokers, and is still open: until it
is completed, its `transaction.timeout.ms` runs, and the next producer of its transactional id
aborts it.  A process that never wrote anything may complete it, by what `prepare` returned.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import trio

from ottla.client.network.bootstrap import addresses_of
from ottla.client.network.cluster import Cluster, open_cluster
from ottla.client.produce.accumulator import ProducerIdentity
from ottla.client.transactions.coordinator_calls import CoordinatorAnswer, CoordinatorCalls
from ottla.client.transactions.transaction_flow import (
    AnswerMeaning,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionFlow,
    TransactionOutcomeUnknownError,
    TransactionProtocol,
)
from ottla.model.errors import RefusedError
from ottla.model.settings.client import ProducerConfig

AT_ONCE = 16
"""Transactions that are ended side by side: each has a connection.  Fewer take longer where there
are many, more open many connections at once."""


class PreparedTransaction(NamedTuple):
    """What must be known of an open transaction to end it; may be pickled."""

    transactional_id: str
    """The producer's `transactional.id`."""
    identity: ProducerIdentity
    """Producer id and epoch of the transaction."""
    protocol: TransactionProtocol
    """Protocol of the transaction."""


async def complete_transactions(
    bootstrap: str | Iterable[str | tuple[str, int]],
    prepared: Sequence[PreparedTransaction],
    config: ProducerConfig | None = None,
    *,
    is_commit: bool,
) -> None:
    """Commit, or abort, each of these transactions; a repetition does no harm.

    They are not one: each that can be ended is, and the error of the first that can not is raised
    then.  Of a commit: TransactionAbortedError or ProducerFencedError if the transaction is not
    there any more (a later producer of its id, or its timeout, has aborted it),
    TransactionOutcomeUnknownError if no answer arrives in `max.block.ms`.  An abort raises
    RefusedError if no answer arrives.
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
        open_cluster(
            addresses_of(bootstrap),
            client_id=config.client_id,
            request_timeout_s=config.request_timeout_ms / 1_000,
            login=config.login(),
            tls=config.tls(),
        ) as cluster,
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
    if verdict is AnswerMeaning.DONE:
        return None
    if verdict is AnswerMeaning.ABORT:
        return TransactionAbortedError
    if verdict is AnswerMeaning.FENCED:
        return ProducerFencedError
    return TransactionOutcomeUnknownError


def _abort_error(answer: CoordinatorAnswer) -> type[RefusedError] | None:
    """Return no error where the transaction is not open any more: somebody else ended it."""
    ended = AnswerMeaning.DONE, AnswerMeaning.IDENTIFY, AnswerMeaning.FENCED
    return None if answer.verdict in ended else RefusedError
