"""Cost of consumer groups to their coordinator: commits at full speed, and a rebalance of many
members.

Commits are frames that are prepared in advance, as in requests.py.  Members use the classic
protocol, each over a separate connection.  They respond at once, so only the broker's own time is
measured.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

import trio

from ottla.bench.requests import SmallRequest, answer_to, frame_of, repeat
from ottla.bench.result import Result
from ottla.client.network.cluster import raise_for
from ottla.client.network.connection import BrokerConnection, connect
from ottla.model.errors import ErrorCode
from ottla.wire import codec, headers
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.messages.sync_group_response import SyncGroupResponse

COMMIT_VERSION = 8
FIND_VERSION = 3
PATIENCE_S = 60.0
ASK_AGAIN_S = 0.1
SESSION_TIMEOUT_MS = 30_000
REBALANCE_TIMEOUT_MS = 60_000
NOT_YET = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
"""Error codes of a group's coordinator after which a request is retried. Kafka may name a
coordinator that has not loaded the group's partition yet."""
HEARTBEAT_S = 0.1
"""Interval in seconds between a member's heartbeats. With the clients' default of 3 s, members
would notice a rebalance later than necessary."""
SUBSCRIPTION = b"\0\1\0\0\0\1\0\x0bottla-bench\0\0\0\0"
ASSIGNMENT = b"\0\1\0\0\0\1\0\x0bottla-bench\0\0\0\1\0\0\0\0\0\0\0\0"

Address = tuple[str, int]
Progress = Callable[[int], None]


def run_commits(
    bootstrap: Address,
    *,
    topic: str,
    count: int,
    connections: int,
    in_flight: int,
    has_members: bool,
    progress: Progress,
) -> Result:
    """Commit offsets of one group at full speed. Each connection commits the offset of a different
    partition, and every response is checked. Returns the rate and the latencies.

    If `has_members`, each connection commits as a member of the group, in the current generation.
    """
    group = f"ottla-bench-{time.time_ns()}"
    address = find_coordinator(bootstrap, group)
    members = [JoinGroupResponse(generation_id=-1, member_id="")] * connections
    if has_members:
        members = trio.run(_GroupMembers(group, address, connections, HEARTBEAT_S).join)
    smalls = [_commit_of(address, group, topic, *one) for one in enumerate(members)]
    return repeat(address, "commits", smalls, count=count, in_flight=in_flight, progress=progress)


def find_coordinator(bootstrap: Address, group: str) -> Address:
    """Return the address of a group's coordinator. Waits until the group has one."""
    frame = frame_of(FindCoordinatorRequest(key=group), FIND_VERSION)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = answer_to(bootstrap, frame)
        _, at = headers.decode_response_header(FindCoordinatorRequest.API_KEY, FIND_VERSION, answer)
        found = codec.decode(FindCoordinatorResponse, FIND_VERSION, memoryview(answer)[at:])
        if found.error_code == ErrorCode.NONE:
            return found.host, found.port
        if time.monotonic() > deadline:
            raise_for(found.error_code, found.error_message)
        time.sleep(ASK_AGAIN_S)


def _commit_of(
    address: Address, group: str, topic: str, index: int, member: JoinGroupResponse
) -> SmallRequest:
    """Return the OffsetCommit request of one connection, and the expected response, which is always
    the same."""
    row = OffsetCommitRequestPartition(partition_index=index, committed_offset=1_000_000)
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[row])]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=member.generation_id,
        member_id=member.member_id,
        topics=topics,
    )
    frame = frame_of(request, COMMIT_VERSION)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = answer_to(address, frame)
        _, at = headers.decode_response_header(OffsetCommitRequest.API_KEY, COMMIT_VERSION, answer)
        found = codec.decode(OffsetCommitResponse, COMMIT_VERSION, memoryview(answer)[at:])
        code = found.topics[0].partitions[0].error_code
        if code not in NOT_YET or time.monotonic() > deadline:
            raise_for(code)
            return SmallRequest(frame, 0, answer)
        time.sleep(ASK_AGAIN_S)


def run_rebalances(
    bootstrap: Address, *, members: int, heartbeat_s: float, rounds: int, progress: Progress
) -> dict[str, Any]:
    """Measure two rebalances per round: of a new group from its first join, and of a stable group
    after its leader joins again. Returns the duration of each rebalance in seconds, and the
    medians."""
    first: list[float] = []
    again: list[float] = []
    for index in range(rounds):
        group = f"ottla-bench-{time.time_ns()}"
        address = find_coordinator(bootstrap, group)
        seconds = trio.run(_GroupMembers(group, address, members, heartbeat_s).run)
        first.append(seconds[0])
        again.append(seconds[1])
        progress(index + 1)
    return {
        "what": "rebalance",
        "members": members,
        "heartbeat_s": heartbeat_s,
        "first_s_median": round(median(first), 3),
        "first_s_all": [round(value, 3) for value in first],
        "again_s_median": round(median(again), 3),
        "again_s_all": [round(value, 3) for value in again],
    }


class _GroupMembers:
    """The members of one consumer group. Measures the time until all of them have synced in one
    generation."""

    def __init__(self, group: str, address: Address, count: int, heartbeat_s: float) -> None:
        self._group = group
        self._address = address
        self._count = count
        self._heartbeat_s = heartbeat_s
        self._synced: dict[int, dict[str, JoinGroupResponse]] = {}
        self._whole = trio.Event()
        self._starter = trio.Event()

    async def run(self) -> tuple[float, float]:
        """Return the durations of the group's first and second rebalance, in seconds."""
        async with self._living() as started:
            await self._whole.wait()
            first = trio.current_time() - started
            self._whole = trio.Event()
            started = trio.current_time()
            self._starter.set()
            await self._whole.wait()
            again = trio.current_time() - started
        return first, again

    async def join(self) -> list[JoinGroupResponse]:
        """Join all members to the group until they are in one generation, and return their
        responses. The members remain in the group."""
        async with self._living():
            await self._whole.wait()
        return [*self._synced[max(self._synced)].values()]

    @asynccontextmanager
    async def _living(self) -> AsyncIterator[float]:
        """Run the members of the group, and yield the time of their start. At the end of the block
        they stop without leaving the group."""
        host, port = self._address
        connections: list[BrokerConnection] = []
        with trio.fail_after(PATIENCE_S):
            for _ in range(self._count):
                found = await connect(host, port, client_id="ottla-bench", timeout_s=PATIENCE_S)
                connections.append(found)
            try:
                async with trio.open_nursery() as nursery:
                    started = trio.current_time()
                    for connection in connections:
                        nursery.start_soon(self._live, connection)
                    yield started
                    nursery.cancel_scope.cancel()
            finally:
                with trio.CancelScope(shield=True):
                    for connection in connections:
                        await connection.aclose()

    async def _live(self, connection: BrokerConnection) -> None:
        """Join and sync one member, and send its heartbeats until a rebalance begins. Repeats these
        steps until cancelled."""
        member_id = ""
        while True:
            joined = await self._join(connection, member_id)
            member_id = joined.member_id
            if await self._sync(connection, joined):
                self._note(joined)
                await self._send_heartbeat(connection, joined)

    async def _join(self, connection: BrokerConnection, member_id: str) -> JoinGroupResponse:
        while True:
            request = JoinGroupRequest(
                group_id=self._group,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
            )
            answer = await connection.request(request, JoinGroupResponse)
            if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                raise_for(answer.error_code)
                return answer
            member_id = answer.member_id

    async def _sync(self, connection: BrokerConnection, joined: JoinGroupResponse) -> bool:
        """Send the SyncGroup request of a member. The leader's request assigns the same partitions
        to all members. Returns False if another rebalance has begun."""
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=row.member_id, assignment=ASSIGNMENT)
                for row in joined.members
            ],
        )
        answer = await connection.request(request, SyncGroupResponse)
        return self._is_settled(answer.error_code)

    async def _send_heartbeat(
        self, connection: BrokerConnection, joined: JoinGroupResponse
    ) -> None:
        is_leader = joined.leader == joined.member_id
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
        )
        while True:
            with trio.move_on_after(self._heartbeat_s):
                if is_leader:
                    await self._starter.wait()
                    self._starter = trio.Event()
                    return
                await trio.sleep_forever()
            answer = await connection.request(request, HeartbeatResponse)
            if not self._is_settled(answer.error_code):
                return

    def _is_settled(self, code: int) -> bool:
        """Return whether a heartbeat's error code shows that no rebalance is in progress.  Raises
        RefusedError for an unexpected error code."""
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        raise_for(code)
        return True

    def _is_complete(self, generation: int) -> bool:
        return len(self._synced.get(generation, ())) == self._count

    def _note(self, joined: JoinGroupResponse) -> None:
        """Record that a member has synced in its generation. The last member to sync completes the
        rebalance."""
        self._synced.setdefault(joined.generation_id, {})[joined.member_id] = joined
        if self._is_complete(joined.generation_id):
            self._whole.set()
