"""The workloads by name: for each, its generator and the clients that perform its operations."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

import trio

from ottla.jepsen.clients.confluent import open_confluent
from ottla.jepsen.clients.confluent_group import ConfluentGroupClient
from ottla.jepsen.clients.confluent_list_offsets import ConfluentListOffsetsClient
from ottla.jepsen.clients.confluent_metadata import ConfluentMetadataClient
from ottla.jepsen.clients.confluent_offsets import ConfluentOffsetsClient
from ottla.jepsen.clients.confluent_producer_ids import ConfluentProducerIdsClient
from ottla.jepsen.clients.confluent_queue import ConfluentQueueClient
from ottla.jepsen.clients.confluent_share import ConfluentShareClient, check_share_consumer
from ottla.jepsen.clients.confluent_transactions import ConfluentTransactionsClient
from ottla.jepsen.clients.java_share import java_command, open_java_share
from ottla.jepsen.clients.own import open_own
from ottla.jepsen.clients.own_group import OwnGroupClient
from ottla.jepsen.clients.own_list_offsets import OwnListOffsetsClient
from ottla.jepsen.clients.own_metadata import OwnMetadataClient
from ottla.jepsen.clients.own_offsets import OwnOffsetsClient
from ottla.jepsen.clients.own_producer_ids import OwnProducerIdsClient
from ottla.jepsen.clients.own_queue import OwnQueueClient
from ottla.jepsen.clients.own_share import OwnShareClient, prepare_share_group
from ottla.jepsen.clients.own_transactions import OwnTransactionsClient
from ottla.jepsen.clients.topics import clear_away, count_brokers, make_topics, warm_up
from ottla.jepsen.history import Json
from ottla.jepsen.workloads.group import GroupLoad
from ottla.jepsen.workloads.list_offsets import ListOffsetsLoad
from ottla.jepsen.workloads.load import (
    CONFLUENT,
    JAVA,
    OWN,
    Completion,
    Generator,
    LoadClient,
    LoadPlan,
    NewTopic,
    Note,
    Op,
)
from ottla.jepsen.workloads.metadata import MetadataLoad
from ottla.jepsen.workloads.offsets import OffsetsLoad
from ottla.jepsen.workloads.pace import ThreadPace
from ottla.jepsen.workloads.producer_ids import ProducerIdsLoad
from ottla.jepsen.workloads.queue import QueueLoad
from ottla.jepsen.workloads.share import FACTS, ShareLoad
from ottla.jepsen.workloads.transactions import TransactionsLoad
from ottla.model.errors import ConfigError


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """Row of the table of workloads: generator, client factories and properties of one workload."""

    generator: Callable[[LoadPlan], Generator]
    own: Callable[..., Any]
    """Factory of the load clients that use Ottla's own client. Its arguments are nursery,
    bootstrap, thread, note and plan."""
    confluent: Callable[..., Any]
    """Factory of the load clients that use confluent-kafka. Its arguments are bootstrap, thread,
    note and plan."""
    record_key_count: int = 0
    """Number of record keys in each log of the workload. Its topics are compacted if it is above 0.
    If it is 0, records have no key."""
    java: Callable[..., Any] | None = None
    """Factory of the load clients that use Kafka's Java client. Its arguments are bootstrap, thread
    and plan. None if the workload has no such client."""
    prepare: Callable[[str, LoadPlan, Sequence[NewTopic]], Awaitable[None]] | None = None
    """Function that prepares the cluster after the topics are created, with the arguments
    bootstrap, plan and topics. None if the workload needs no preparation."""
    facts: Mapping[str, Json] = field(default_factory=dict)
    """Facts that the workload's checkers need, by their names in RunFacts."""
    check_confluent: Callable[[], None] | None = None
    """Function that raises ConfigError if the installed confluent-kafka is too old for the
    workload. None if the workload supports every version."""


RECORD_KEYS = 8
"""Number of record keys in a compacted log. It is small, so that most records are superseded within
a run."""

ROWS: Mapping[str, WorkloadRow] = {
    "queue": WorkloadRow(QueueLoad, OwnQueueClient, ConfluentQueueClient),
    "compacted": WorkloadRow(QueueLoad, OwnQueueClient, ConfluentQueueClient, RECORD_KEYS),
    "offsets": WorkloadRow(OffsetsLoad, OwnOffsetsClient, ConfluentOffsetsClient),
    "group": WorkloadRow(GroupLoad, OwnGroupClient, ConfluentGroupClient),
    "metadata": WorkloadRow(MetadataLoad, OwnMetadataClient, ConfluentMetadataClient),
    "producer-ids": WorkloadRow(ProducerIdsLoad, OwnProducerIdsClient, ConfluentProducerIdsClient),
    "transactions": WorkloadRow(
        TransactionsLoad, OwnTransactionsClient, ConfluentTransactionsClient
    ),
    "list-offsets": WorkloadRow(ListOffsetsLoad, OwnListOffsetsClient, ConfluentListOffsetsClient),
    "share": WorkloadRow(
        ShareLoad,
        OwnShareClient,
        ConfluentShareClient,
        java=open_java_share,
        prepare=prepare_share_group,
        facts=FACTS,
        check_confluent=check_share_consumer,
    ),
}


def check_clients(workloads: Iterable[str], kinds: Sequence[str]) -> None:
    """Raise ConfigError if a workload cannot use one of the kinds of clients in `kinds` on this
    machine."""
    for name in workloads:
        row = ROWS[name]
        if JAVA in kinds:
            if row.java is None:
                raise ConfigError("--clients", f"java has no part in the workload {name}")
            if set(kinds) == {JAVA}:
                raise ConfigError("--clients", "java only consumes; name another client, too")
            java_command()
        if CONFLUENT in kinds and row.check_confluent is not None:
            row.check_confluent()


class Workload:
    """One workload of a run: its generator of operations and its clients."""

    def __init__(self, name: str, row: WorkloadRow, plan: LoadPlan) -> None:
        self.name = name
        self.plan = plan = replace(plan, record_key_count=row.record_key_count)
        self._row = row
        self._generator = row.generator(plan)
        self._pace = ThreadPace(plan.thread_count, self._generator.ops_per_s_max)

    @property
    def checkers(self) -> tuple[str, ...]:
        """Names of the checkers for the workload's history."""
        return self._generator.checkers

    @property
    def is_caught_up(self) -> bool:
        """True if the final reads (after the load) have reached the end of every key
        (partition)."""
        return self._generator.is_caught_up

    def facts(self) -> dict[str, Json]:
        """Return the properties of the run that the workload's checkers need in addition to the
        history."""
        return {
            "workload": self.name,
            "idempotent": self.plan.idempotent,
            "acks": "all",
            "record_key_count": self.plan.record_key_count,
            **self._row.facts,
        }

    async def set_up(self, bootstrap: str) -> None:
        """Create the first topics of the workload. Raises RefusedError or ConnectionLostError if
        that fails. A first FindCoordinator request also makes the cluster create the topic of its
        group coordinators."""
        self.plan = replace(self.plan, broker_count=await count_brokers(bootstrap))
        await make_topics(bootstrap, self.plan, self._generator.topics)
        await warm_up(bootstrap, self.plan)
        if self._row.prepare is not None:
            await self._row.prepare(bootstrap, self.plan, self._generator.topics)

    async def tear_down(self, bootstrap: str) -> None:
        """Delete the topics and groups with the workload's prefix. This is needed on a cluster that
        continues to run afterwards."""
        await clear_away(bootstrap, self.plan.prefix)

    def next_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return the thread's next operation, or None if the thread must wait."""
        if not self._pace.may_begin(thread, now_ns):
            return None
        return self._generator.next_op(thread, now_ns, rng)

    def on_completion(self, thread: int, op: Op, done: Completion) -> None:
        """Update the generator's model of the cluster with the outcome (`done`) of an operation."""
        self._generator.on_completion(thread, op, done)

    def final_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return the thread's next operation after all faults are healed, or None if the thread is
        finished."""
        return self._generator.final_op(thread, now_ns, rng)

    @asynccontextmanager
    async def open_client(
        self, bootstrap: str, thread: int, note: Note
    ) -> AsyncIterator[LoadClient]:
        """Open and yield the load client of one thread. Raises ConfigError if its library is not
        installed."""
        opened: AbstractAsyncContextManager[LoadClient]
        if self.plan.kinds[thread] == OWN:
            make_own = partial(self._row.own, plan=self.plan)
            opened = open_own(make_own, bootstrap, thread, note)
        elif self.plan.kinds[thread] == JAVA:
            assert self._row.java is not None
            opened = self._row.java(bootstrap, thread, self.plan)
        else:
            make_confluent = partial(self._row.confluent, plan=self.plan)
            opened = open_confluent(make_confluent, bootstrap, thread, note)
        async with opened as client:
            yield client
            await trio.lowlevel.checkpoint()


WORKLOADS: Mapping[str, Callable[[LoadPlan], Workload]] = {
    name: partial(Workload, name, row) for name, row in ROWS.items()
}
