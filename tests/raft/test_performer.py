"""The one performer of effects: its order, and its handling of a step that fails."""

from dataclasses import fields
from typing import NoReturn

import pytest

from ottla.jepsen.quorum.memory_log import Entries, MemoryEntry, MemoryLog
from ottla.jepsen.quorum.solo import Solo
from ottla.jepsen.quorum.world import identity
from ottla.jepsen.world.rng import SeededRng
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.model.run_now import run_now
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft.effects import (
    Append,
    Effects,
    LeaderAppend,
    OutgoingRequest,
    ReadLog,
    ReadSnapshot,
    RejectedResponse,
    Reply,
    RoleChange,
    SnapshotChunk,
)
from ottla.raft.election_state import ElectionState
from ottla.raft.events import AppendRequested, Event, Tick
from ottla.raft.messages import FetchResponse, FetchSnapshotResponse, Records
from ottla.raft.performer import perform, take_step
from ottla.raft.quorum import QuorumCore
from ottla.raft.transitions import Role


class EndedError(Exception):
    """The error that the caller of a failed step receives."""


class NotedPorts:
    """Ports that note their calls; one of them may fail."""

    def __init__(self, failing: str = "", error: Exception | None = None) -> None:
        self.calls: list[str] = []
        self.replies: list[Reply] = []
        self.failures: list[Exception] = []
        self.is_out_of_space = False
        self._failing = failing
        self._error = error or OSError("a disk that fails")

    def _note(self, name: str) -> None:
        self.calls.append(name)
        if name == self._failing:
            raise self._error

    async def truncate_to(self, offset: Offset, /) -> None:
        """Note it."""
        self._note("truncate")

    def append(self, append: Append, /) -> None:
        """Note it."""
        self._note("append")

    async def write_chunk(self, chunk: SnapshotChunk, /) -> None:
        """Note it."""
        self._note("chunk")

    async def write_election(self, state: ElectionState, /) -> None:
        """Note it."""
        self._note("election")

    def flush_soon(self) -> None:
        """Note it."""
        self._note("flush")

    async def read_log(self, read: ReadLog, /) -> Records:
        """Return some bytes."""
        self._note("read")
        return b"records"

    def answer(self, reply: Reply, /) -> None:
        """Note it."""
        self._note("answer")
        self.replies.append(reply)

    def send(self, outgoing: OutgoingRequest, /) -> None:
        """Note it."""
        self._note("send")

    def commit(self, high_watermark: Offset, /) -> None:
        """Note it."""
        self._note("commit")

    def reject_response(self, rejection: RejectedResponse, /) -> None:
        """Note it."""
        self._note("reject_response")

    def change_role(self, change: RoleChange, /) -> None:
        """Note it."""
        self._note("role")

    def wake_at(self, wake_ms: int | None, /) -> None:
        """Note it."""
        self._note("wake")

    def fail(self, error: Exception, /) -> NoReturn:
        """Note it, and end."""
        self.failures.append(error)
        raise EndedError from error


def all_effects() -> Effects:
    """Return effects of every kind."""
    solo = Solo()
    solo.tick(2 * solo.config.election_timeout_ms)
    read = ReadLog(offset=Offset(0), bytes_max=10)
    snapshot_id = OffsetAndEpoch(Offset(3), Epoch(1))
    chunk = SnapshotChunk(snapshot_id=snapshot_id, position=0, data=b"", is_last=True)
    return Effects(
        truncate_to=Offset(1),
        append=[LeaderAppend(leader_epoch=Epoch(1), records=b"")],
        snapshot_chunk=chunk,
        persist_election=ElectionState(),
        flush=True,
        replies=[Reply(token=1, response=FetchResponse(leader_epoch=Epoch(1)), read=read)],
        messages=solo.sent[:1],
        high_watermark=Offset(1),
        role_change=RoleChange(role=Role.LEADER, epoch=Epoch(1), leader_id=NodeId(1)),
        rejected=RejectedResponse(node_id=NodeId(2), why="no such leader"),
        next_wake_ms=1,
    )


ORDER = [
    *("truncate", "append", "chunk"),
    *("election", "flush"),
    *("read", "answer", "send"),
    *("commit", "reject_response", "role", "wake"),
]


def test_effects_are_performed_in_the_order_append_flush_send_apply() -> None:
    effects, ports = all_effects(), NotedPorts()
    assert all(getattr(effects, field.name) for field in fields(effects))
    run_now(perform(effects, ports))
    assert ports.calls == ORDER


@pytest.mark.parametrize("failing", ORDER)
def test_nothing_is_performed_after_an_effect_that_fails(failing: str) -> None:
    ports = NotedPorts(failing)
    with pytest.raises(OSError, match="a disk that fails"):
        run_now(perform(all_effects(), ports))
    assert ports.calls == ORDER[: ORDER.index(failing) + 1]


def test_an_offset_that_went_meanwhile_is_answered_with_no_records() -> None:
    ports = NotedPorts("read", RefusedError(ErrorCode.OFFSET_OUT_OF_RANGE))
    run_now(perform(all_effects(), ports))
    assert ports.replies == [Reply(token=1, response=FetchResponse(leader_epoch=Epoch(1)))]


def test_a_snapshot_is_left_to_be_read_after_the_step() -> None:
    snapshot_id = OffsetAndEpoch(Offset(3), Epoch(1))
    read = ReadSnapshot(snapshot_id=snapshot_id, position=0, bytes_max=10)
    reply = Reply(token=1, response=FetchSnapshotResponse(leader_epoch=Epoch(1)), read=read)
    ports = NotedPorts()
    run_now(perform(Effects(replies=[reply]), ports))
    assert ports.replies == [reply]
    filled = reply.filled(b"data")
    assert filled.response == FetchSnapshotResponse(leader_epoch=Epoch(1), data=b"data")
    assert filled.read is None


def leader(ports: NotedPorts) -> QuorumCore:
    """Return the core of a quorum of one, which leads."""
    log = MemoryLog()
    core = QuorumCore(QuorumConfig(), identity(1, (1,)), log, None, SeededRng(1), 0)
    run_now(take_step(core, Tick(), 0, ports))
    assert core.is_leader
    ports.calls.clear()
    return core


def append_of(core: QuorumCore, epoch: Epoch) -> Event:
    """Return an append under the leadership of an epoch."""
    return AppendRequested(epoch=epoch, records=Entries([MemoryEntry(core.epoch, "v")]))


def test_an_append_that_the_core_refuses_changes_nothing_and_ends_no_replica() -> None:
    ports = NotedPorts()
    core = leader(ports)
    with pytest.raises(RefusedError):
        run_now(take_step(core, append_of(core, Epoch(core.epoch + 1)), 1, ports))
    assert ports.calls == []
    assert ports.failures == []


@pytest.mark.parametrize("error", [OSError(), RefusedError(ErrorCode.KAFKA_STORAGE_ERROR)])
def test_an_append_that_fails_half_done_ends_the_replica(error: Exception) -> None:
    ports = NotedPorts("append", error)
    core = leader(NotedPorts())
    with pytest.raises(EndedError):
        run_now(take_step(core, append_of(core, core.epoch), 1, ports))
    assert ports.failures == [error]


def test_a_clock_that_goes_back_ends_the_replica() -> None:
    ports = NotedPorts()
    core = leader(ports)
    with pytest.raises(EndedError):
        run_now(take_step(core, Tick(), -1, ports))
    assert len(ports.failures) == 1


def test_a_leader_without_room_for_a_record_resigns() -> None:
    solo, ports = Solo(), NotedPorts()
    solo.become_leader()
    ports.is_out_of_space = True
    run_now(take_step(solo.core, append_of(solo.core, solo.core.epoch), solo.now_ms, ports))
    assert not solo.core.is_leader
    assert ports.calls.index("append") < ports.calls.index("role")
