"""The share workload, performed with Ottla's own client: one producer, and one share consumer."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from math import ceil

import trio

from ottla.client.admin import Admin, open_admin
from ottla.client.admin_parts.admin_configs import ConfigResource
from ottla.client.producer import Producer, open_producer
from ottla.client.share.share_records import PendingAcknowledgement, ShareRecord
from ottla.client.share_consumer import ShareConsumer, open_share_consumer
from ottla.jepsen.clients.completions import DEADLINE_S, TROUBLE, failed, ok
from ottla.jepsen.clients.own import OwnClient
from ottla.jepsen.clients.own_queue import LEAVE_S
from ottla.jepsen.clients.own_sending import REQUEST_TIMEOUT_MS, producer_config, send_one
from ottla.jepsen.clients.renewable import Renewable
from ottla.jepsen.history import EventKind, Json
from ottla.jepsen.workloads.keys import key_of
from ottla.jepsen.workloads.load import NOTHING_TO_READ, Completion, LoadPlan, NewTopic, Note, Op
from ottla.jepsen.workloads.share import GROUP_SETTINGS, group_of
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.resources import ConfigKind
from ottla.model.settings.share_client import ShareConsumerConfig

POLL_S = 0.1
"""Timeout in seconds of a share consumer's poll that finds no new records."""
RECORDS_MAX = 5
"""Maximum number of records that one poll of a share consumer returns. With few records per poll,
many members have acquired records at the same time."""
REFUSALS = frozenset({"INVALID_RECORD_STATE", "InvalidRecordStateException"})
"""Names of errors with which a broker correctly refuses acknowledgements of a share group
member."""
READY_TIMEOUT_S = 45.0
LOOK_AGAIN_S = 0.2


def share_config(group: str) -> ShareConsumerConfig:
    """Return the configuration of a member of a share group."""
    return ShareConsumerConfig(
        group_id=group,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        retry_backoff_ms=50,
        client_id="jepsen",
    )


async def prepare_share_group(bootstrap: str, plan: LoadPlan, topics: Sequence[NewTopic]) -> None:
    """Configure the share group of the plan, and wait until the group delivers records.

    The cluster creates the topic of the share coordinators when the first member joins.
    """
    group = group_of(plan)
    async with open_admin(bootstrap, client_id="jepsen") as admin:
        await admin.alter_configs(ConfigResource(ConfigKind.GROUP, group), GROUP_SETTINGS)
    with trio.fail_after(READY_TIMEOUT_S):
        async with (
            open_admin(bootstrap, client_id="jepsen") as admin,
            open_share_consumer(bootstrap, share_config(group)) as consumer,
        ):
            consumer.subscribe([topic.name for topic in topics])
            count = sum(topic.partition_count for topic in topics)
            while True:
                await consumer.poll(LOOK_AGAIN_S)
                found = await admin.share_group_offsets(group)
                if sum(one.start_offset is not None for one in found.values()) == count:
                    return


class OwnShareClient(OwnClient):
    """Load client for one thread of the share workload, with Ottla's own client."""

    def __init__(
        self, nursery: trio.Nursery, bootstrap: str, thread: int, note: Note, plan: LoadPlan
    ) -> None:
        super().__init__(nursery, bootstrap, thread, note)
        self._group = group_of(plan)
        config = producer_config(idempotent=plan.idempotent)
        self._producer: Renewable[Producer] = Renewable(
            nursery, partial(open_producer, bootstrap, config)
        )
        self._member: Renewable[ShareConsumer] = Renewable(nursery, self._open_member)
        self._admin: Renewable[Admin] = Renewable(
            nursery, partial(open_admin, bootstrap, timeout_s=DEADLINE_S)
        )
        self._held: dict[tuple[str, int], ShareRecord] = {}
        self.parts = [self._producer, self._member, self._admin]

    @property
    def operations(self) -> dict[str, Callable[[Op], Awaitable[Completion]]]:
        """Functions that perform the workload's operations, by operation name."""
        return {
            "send": self._send,
            "join": self._join,
            "leave": self._leave,
            "take": self._take,
            "acknowledge": self._acknowledge,
            "start-offsets": self._describe,
        }

    def on_crash(self) -> None:
        """Drop the list of acquired records, which the client can no longer acknowledge."""
        self._held.clear()

    def _open_member(self) -> AbstractAsyncContextManager[ShareConsumer]:
        return open_share_consumer(self.bootstrap, share_config(self._group))

    async def _send(self, op: Op) -> Completion:
        return await send_one(await self._producer.get(), op)

    async def _join(self, op: Op) -> Completion:
        member = await self._member.get()
        member.subscribe(op.value["topics"])
        return ok({**op.value, "member": member.member_id})

    async def _leave(self, op: Op) -> Completion:
        with trio.move_on_after(LEAVE_S):
            await self._member.aclose()
        self._held.clear()
        return ok()

    async def _take(self, op: Op) -> Completion:
        member = self._member.current
        if member is None:
            return failed(NOTHING_TO_READ)
        self._held.clear()
        keys: dict[str, list[Json]] = {}
        for record in await member.poll(POLL_S, record_count_max=RECORDS_MAX):
            key = key_of(record.topic, record.partition)
            row = [int(record.offset), int(record.value or b"-1"), record.delivery_count]
            keys.setdefault(key, []).append([*row, age_ms_of(record)])
            self._held[key, record.offset] = record
        return ok({**op.value, "member": member.member_id, "keys": keys})

    async def _acknowledge(self, op: Op) -> Completion:
        found: dict[str, list[Json]] = {}
        pending: list[tuple[list[Json], PendingAcknowledgement]] = []
        for key, acks in op.value["keys"].items():
            rows = found[key] = [[offset, kind, None] for offset, kind in acks]
            for row in rows:
                record = self._held.get((key, row[0]))
                if record is None or record.is_settled:
                    row[2] = False
                else:
                    pending.append((row, getattr(record, row[1])()))
        self.attempted = {**op.value, "keys": found}
        errors: set[str] = set()
        for row, result in pending:
            try:
                await result
                row[2] = True
            except TROUBLE as error:
                # The client promises that no attempt was written. After other errors one may be.
                name = error.code.name if isinstance(error, RefusedError) else str(error)
                row[2] = False if name in REFUSALS else None
                errors.add(name)
        return acknowledged(self.attempted, errors)

    async def _describe(self, op: Op) -> Completion:
        admin = await self._admin.get()
        return ok({**op.value, "keys": await start_offsets(admin, self._group)})


def acknowledged(value: Json, errors: Collection[str]) -> Completion:
    """Return the completion (outcome event) of an operation that acknowledged records. `errors` are
    the names of the errors with which some acknowledgements failed.

    The completion is INFO if no acknowledgement was confirmed. A broker correctly refuses an
    acknowledgement after the end of the acquisition lock.
    """
    if not errors:
        return ok(value)
    extra: dict[str, Json] = {"errors": sorted(errors)}
    outcomes = [row[2] for rows in value["keys"].values() for row in rows]
    if True in outcomes:
        return ok(value, extra)
    if set(errors) <= REFUSALS:
        extra["refused"] = True
    return Completion(EventKind.INFO, value, ", ".join(sorted(errors)), extra)


async def described_group(bootstrap: str, group: str) -> dict[str, Json]:
    """Return the start offset and lag of a share group in each partition, by key
    ("topic-partition"). Used for client libraries that cannot request them."""
    async with open_admin(bootstrap, timeout_s=DEADLINE_S) as admin:
        return await start_offsets(admin, group)


async def start_offsets(admin: Admin, group: str) -> dict[str, Json]:
    """Return the start offset and lag of a share group in each partition, by key
    ("topic-partition")."""
    try:
        found = await admin.share_group_offsets(group)
    except RefusedError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return {}
    return {
        key_of(*at): [None if one.start_offset is None else int(one.start_offset), one.lag]
        for at, one in found.items()
    }


def age_ms_of(record: ShareRecord) -> int:
    """Return the age of a fetched record in ms, rounded up. The age is measured from the time at
    which the client sent the fetch."""
    return ceil((trio.current_time() - record._acquired.requested_s) * 1_000) + 1
