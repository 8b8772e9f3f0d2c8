"""The group workload, performed with Ottla's own client and either group protocol."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial

import trio

from ottla.client.consumer import Consumer, open_consumer
from ottla.client.groups.group import NO_LONGER_OURS
from ottla.client.producer import Producer, open_producer
from ottla.jepsen.clients.completions import TROUBLE, failed, ok, troubled
from ottla.jepsen.clients.own import OwnClient
from ottla.jepsen.clients.own_queue import (
    LEAVE_S,
    POLL_S,
    RECORDS_MAX,
    consumer_config,
    read_value,
)
from ottla.jepsen.clients.own_sending import producer_config, send_one
from ottla.jepsen.clients.renewable import Renewable
from ottla.jepsen.history import Json
from ottla.jepsen.workloads.keys import key_of, partition_of
from ottla.jepsen.workloads.load import NOTHING_TO_READ, Completion, LoadPlan, Note, Op
from ottla.jepsen.workloads.subscribers import CLASSIC, CONSUMER
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig

THROWN_OUT = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    }
)
"""Error codes after which a group member is no longer in its group. It may join again."""


def member_config(joined: Mapping[str, Json]) -> ConsumerConfig:
    """Return the configuration of a group member for the value of a `join` operation."""
    is_new = joined["protocol"] == CONSUMER
    config = consumer_config(joined["group"], CONSUMER if is_new else CLASSIC)
    config = replace(config, group_instance_id=joined["instance"])
    if not is_new:
        config = replace(config, partition_assignment_strategy=(joined["protocol"],))
    return config


class OwnGroupClient(OwnClient):
    """Load client for one thread of the group workload, with Ottla's own client."""

    def __init__(
        self, nursery: trio.Nursery, bootstrap: str, thread: int, note: Note, plan: LoadPlan
    ) -> None:
        super().__init__(nursery, bootstrap, thread, note)
        config = producer_config(idempotent=plan.idempotent)
        self._producer: Renewable[Producer] = Renewable(
            nursery, partial(open_producer, bootstrap, config)
        )
        self._joined: Mapping[str, Json] | None = None
        self._member: Renewable[Consumer] = Renewable(nursery, self._open_member)
        self._next: dict[str, int] = {}
        """For each assigned key (partition), the next offset to read."""
        self.parts = [self._producer, self._member]

    @property
    def operations(self) -> Mapping[str, Callable[[Op], Awaitable[Completion]]]:
        """Functions that perform the workload's operations, by operation name."""
        return {
            "send": self._send,
            "join": self._join,
            "leave": self._leave,
            "poll": self._poll,
            "commit": self._commit,
            "fetch": self._fetch,
        }

    def on_crash(self) -> None:
        """Reset the state of the group membership that the crash ended."""
        self._joined = None
        self._next.clear()

    def _open_member(self) -> AbstractAsyncContextManager[Consumer]:
        assert self._joined is not None
        return open_consumer(self.bootstrap, member_config(self._joined))

    async def _send(self, op: Op) -> Completion:
        return await send_one(await self._producer.get(), op)

    async def _join(self, op: Op) -> Completion:
        self._joined = op.value
        member = await self._member.get()

        def record(f: str, partitions: tuple[TopicPartition, ...]) -> None:
            keys = [key_of(*at) for at in partitions]
            for key in keys:
                self._next.pop(key, None)
            who, generation = _identity(member)
            value = {"group": op.value["group"], "member": who, "generation": generation}
            self.note(f, {**value, "keys": keys})

        async def on_assigned(partitions: tuple[TopicPartition, ...]) -> None:
            record("assigned", partitions)
            await trio.lowlevel.checkpoint()

        async def on_revoked(partitions: tuple[TopicPartition, ...]) -> None:
            record("revoked", partitions)
            await trio.lowlevel.checkpoint()

        async def on_lost(partitions: tuple[TopicPartition, ...]) -> None:
            record("lost", partitions)
            await trio.lowlevel.checkpoint()

        member.subscribe(
            op.value["topics"], on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost
        )
        return ok()

    async def _leave(self, op: Op) -> Completion:
        with trio.move_on_after(LEAVE_S):
            await self._member.aclose()
        self._joined = None
        self._next.clear()
        return ok()

    async def _poll(self, op: Op) -> Completion:
        member = self._member.current
        if member is None:
            return failed(NOTHING_TO_READ)
        before = _identity(member)
        try:
            read = read_value(await member.poll(POLL_S, record_count_max=RECORDS_MAX))
        except RefusedError as error:
            if error.code not in THROWN_OUT:
                raise
            await self._member.crash()
            self._next.clear()
            text = f"{NOTHING_TO_READ}: {error.code.name}"
            return failed(text, None, {"refused": True})
        for key, records in read.items():
            self._next[key] = records[-1][0] + 1
        return ok(self._operation_value(member, before, read))

    async def _commit(self, op: Op) -> Completion:
        member = self._member.current
        if member is None:
            return failed(NOTHING_TO_READ)
        before = _identity(member)
        keys = dict(self._next)
        if not keys:
            return ok(self._operation_value(member, before, {}))
        offsets = {TopicPartition(*partition_of(key)): offset for key, offset in keys.items()}
        found = member.coordinator_address
        self.attempted = self._operation_value(member, before, keys)
        try:
            await member.commit(offsets)
        except TROUBLE as error:
            # The client retries when a coordinator moves: an earlier attempt of the refused one may
            # have been written.
            done = troubled(op, error)
            is_refused = isinstance(error, RefusedError) and error.code in NO_LONGER_OURS
            refused = {"refused": True} if is_refused else {}
            return replace(done, value=self._operation_value(member, before, keys), extra=refused)
        # A commit that was sent to more than one coordinator has no node in its completion.
        node = member.coordinator_address
        extra = {"node": node} if node is not None and node == found else {}
        return ok(self._operation_value(member, before, keys), extra)

    async def _fetch(self, op: Op) -> Completion:
        member = self._member.current
        if member is None:
            return failed(NOTHING_TO_READ)
        keys = list(self._next)
        found = await member.committed([TopicPartition(*partition_of(key)) for key in keys])
        committed: dict[str, Json] = dict.fromkeys(keys)
        committed.update((key_of(*at), int(one.offset)) for at, one in found.items())
        node = member.coordinator_address
        return ok({"group": op.value["group"], "keys": committed}, {"node": node} if node else {})

    def _operation_value(
        self, member: Consumer, before: tuple[str | None, int | None], keys: Json
    ) -> dict[str, Json]:
        assert self._joined is not None
        who, generation = after = _identity(member)
        value = {"group": self._joined["group"], "member": who}
        return {**value, "generation": generation if after == before else None, "keys": keys}


def _identity(member: Consumer) -> tuple[str | None, int | None]:
    """Return the member id of a consumer, and its generation or member epoch. Each is None if the
    consumer currently has none."""
    try:
        membership = member.group_metadata()
    except RefusedError:
        return None, None
    return membership.member_id, membership.generation_id
