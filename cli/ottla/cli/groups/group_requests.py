"""What the verbs of `ottla group` ask of coordinators and of the leaders of partitions."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import trio

from ottla.cli.topics.offsets import offsets_at
from ottla.client.cluster import Cluster, raise_for
from ottla.model.errors import ErrorCode, RefusedError, row_of
from ottla.model.ids import NodeId, TopicPartition
from ottla.wire.codec_types import Message
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse
from ottla.wire.offset_timestamps import LATEST

R = TypeVar("R", bound=Message)

PATIENCE_S = 10.0
ASK_AGAIN_S = 0.1
MOVING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Codes that pass by themselves: the coordinator is being made, moved or loaded."""

OFFSETS_BY_NAME_VERSION = 9
"""The last version of OffsetFetch and OffsetCommit in which topics are named by their names."""

NO_OFFSET = -1


class Lag(NamedTuple):
    """How far a group is behind in one partition."""

    partition: TopicPartition
    committed: int | None
    end: int

    @property
    def lag(self) -> int | None:
        """The records that are still to be read; None where nothing was committed."""
        return None if self.committed is None else max(0, self.end - self.committed)


async def ask_coordinator(
    cluster: Cluster,
    group: str,
    request: Message,
    response: type[R],
    code_of: Callable[[R], int],
    *,
    version: int | None = None,
) -> R:
    """Ask whoever coordinates a group, and ask again while that moves; the code may be any else."""
    code: int = ErrorCode.COORDINATOR_NOT_AVAILABLE
    with trio.move_on_after(PATIENCE_S):
        while True:
            node, code = await _coordinator_of(cluster, group)
            if code == ErrorCode.NONE:
                answer = await cluster.request(request, response, node=node, version=version)
                code = code_of(answer)
                if code not in MOVING:
                    return answer
            elif code not in MOVING:
                break
            await trio.sleep(ASK_AGAIN_S)
    raise RefusedError(ErrorCode(code), f"group {group!r}: {row_of(code).meaning}")


async def _coordinator_of(cluster: Cluster, group: str) -> tuple[NodeId, int]:
    request = FindCoordinatorRequest(coordinator_keys=[group])
    (found,) = (await cluster.request(request, FindCoordinatorResponse)).coordinators
    return NodeId(found.node_id), found.error_code


async def committed_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, int]:
    """Return all that a group has committed."""
    answer = await ask_coordinator(
        cluster,
        group,
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]),
        OffsetFetchResponse,
        lambda answer: answer.groups[0].error_code,
        version=OFFSETS_BY_NAME_VERSION,
    )
    raise_for(answer.groups[0].error_code, f"group {group!r}")
    return {
        TopicPartition(topic.name, one.partition_index): one.committed_offset
        for topic in answer.groups[0].topics
        for one in topic.partitions
        if one.committed_offset != NO_OFFSET
    }


async def lags(cluster: Cluster, group: str, owned: Iterable[TopicPartition]) -> list[Lag]:
    """Return how far a group is behind, in everything it committed or works on."""
    committed = await committed_offsets(cluster, group)
    ends = await offsets_at(cluster, sorted({*committed, *owned}), LATEST)
    return [Lag(at, committed.get(at), end) for at, end in ends.items()]
