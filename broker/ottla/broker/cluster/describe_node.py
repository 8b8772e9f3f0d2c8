"""DescribeNode (our own, key 20000): what this process is doing, from before it serves.  Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from ottla.broker.network.dispatch import RequestContext
from ottla.model.errors import RefusedError
from ottla.model.ids import NodeId, TopicIdPartition, TopicPartition
from ottla.storage.disk_room import RoomReport
from ottla.storage.log_directory_driver import LogDirectory
from ottla.storage.log_losses import LogLoss
from ottla.storage.log_manager_driver import LogManager
from ottla.wire.messages.describe_node_request import DescribeNodeRequest
from ottla.wire.messages.describe_node_response import (
    DescribeNodeResponse,
    NodeDirectory,
    NodeMetric,
    NodeReplica,
    RecoveringLogDir,
)

PROBLEMS_MAX = 100
"""A broker with ten thousand offline partitions need not name them all."""


REPLICAS_MAX = 1_000
"""Replicas described in one response; a client that wants more asks again."""

NAMES_SHOWN = 3


class DirectoryRecovery(NamedTuple):
    """How far the recovery of one log directory has come."""

    log_dir: str
    remaining_logs: int
    remaining_segments: int
    bytes_total: int
    bytes_done: int


def recovery_of(directories: Iterable[LogDirectory]) -> list[DirectoryRecovery]:
    """Return how far the recovery of each log directory has come."""
    return [
        DirectoryRecovery(
            directory.path,
            directory.progress.remaining_log_count,
            directory.progress.remaining_segment_count,
            directory.progress.bytes_total,
            directory.progress.bytes_done,
        )
        for directory in directories
    ]


def offline_problems(
    offline: Iterable[tuple[TopicPartition, str]], losses: Iterable[LogLoss] = ()
) -> Iterator[str]:
    """Yield which partitions do not serve and why; many with the same reason in one sentence.

    Replicas that lack records they had come first: they serve, but not what was promised.
    """
    for loss in losses:
        yield f"{loss.partition} lost records in {loss.directory}: {loss.reason}"
    by_reason: defaultdict[str, list[TopicPartition]] = defaultdict(list)
    for at, reason in offline:
        by_reason[reason].append(at)
    for reason, found in by_reason.items():
        if len(found) <= NAMES_SHOWN:
            yield from (f"{at} is offline: {reason}" for at in found)
        else:
            names = ", ".join(map(str, found[:NAMES_SHOWN]))
            yield f"{len(found)} partitions are offline ({names}, …): {reason}"


class DescribeNodeApi:
    """Serves DescribeNode 0.

    `state` names what the broker is at (Kafka's broker states), `recovery` its directories,
    `problems` says in sentences what does not serve and why, `directories` what room they have, and
    each of `metric_sources` is asked for its plain numbers.
    """

    def __init__(
        self,
        *,
        node_id: NodeId,
        state: Callable[[], str],
        recovery: Callable[[], Iterable[DirectoryRecovery]],
        problems: Callable[[], Iterable[str]],
        metric_sources: Iterable[Callable[[], Mapping[str, float]]],
        directories: Callable[[], Iterable[RoomReport]] = tuple,
        replica_of: Callable[[TopicPartition], NodeReplica | None] = lambda partition: None,
    ) -> None:
        self._node_id = node_id
        self._state = state
        self._recovery = recovery
        self._problems = problems
        self._directories = directories
        self._replica_of = replica_of
        self._metric_sources = tuple(metric_sources)

    def handle(self, context: RequestContext, request: DescribeNodeRequest) -> DescribeNodeResponse:
        """Answer with the state, the recovery, what is wrong, and every number, by name."""
        metrics: dict[str, float] = {}
        for source in self._metric_sources:
            metrics.update(source())
        rooms = list(self._directories())
        problems = [problem for room in rooms for problem in room.problems]
        return DescribeNodeResponse(
            node_id=self._node_id,
            state=self._state(),
            recovery=[RecoveringLogDir(**found._asdict()) for found in self._recovery()],
            problems=[*problems, *self._problems()][:PROBLEMS_MAX],
            warnings=[warning for room in rooms for warning in room.warnings],
            directories=[
                NodeDirectory(
                    path=room.path,
                    state=room.state.value,
                    total_bytes=room.space.total_bytes,
                    usable_bytes=room.space.usable_bytes,
                )
                for room in rooms
                if room.space is not None
            ],
            replicas=list(islice(self._replicas(request), REPLICAS_MAX)),
            metrics=[
                NodeMetric(name=name, value=float(value)) for name, value in sorted(metrics.items())
            ],
        )

    def _replicas(self, request: DescribeNodeRequest) -> Iterator[NodeReplica]:
        """Yield the replicas that were asked for and have a log here."""
        wanted = (
            TopicPartition(topic.topic, index)
            for topic in request.replicas
            for index in topic.partitions
        )
        for partition in islice(wanted, REPLICAS_MAX):
            found = self._replica_of(partition)
            if found is not None:
                yield found


def replica_report(logs: LogManager, at: TopicPartition) -> NodeReplica | None:
    """Return the ends of a replica's log and its loss; None if the replica has no log here."""
    try:
        log = logs.get(at)
    except RefusedError:
        return None
    if log is None or log.topic_id is None:
        return None
    loss = logs.losses.get(TopicIdPartition(log.topic_id, at.partition))
    promised = None if loss is None else loss.promised_end_offset
    return NodeReplica(
        topic=at.topic,
        partition=at.partition,
        last_epoch=log.last_epoch,
        end_offset=log.end_offset,
        high_watermark=log.high_watermark,
        promised_end_offset=-1 if promised is None else promised,
        loss=None if loss is None else loss.reason,
    )
