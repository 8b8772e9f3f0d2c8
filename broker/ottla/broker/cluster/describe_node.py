"""DescribeNode (Ottla's own, key 20000): describes the state of this process, also during startup.
Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple, Protocol

from ottla.metadata.image import EMPTY, MetadataImage
from ottla.model.errors import RefusedError
from ottla.model.ids import NodeId, TopicIdPartition, TopicPartition
from ottla.model.version import VERSION
from ottla.node.network.dispatch import RequestContext
from ottla.node.quotas.request_quotas import RequestQuotas
from ottla.storage.directories.free_space import FreeSpaceReport
from ottla.storage.directories.log_directory_driver import LogDirectory
from ottla.storage.losses.log_losses import LogLoss
from ottla.storage.manager.log_manager_driver import LogManager
from ottla.wire.messages.describe_node_request import DescribeNodeRequest
from ottla.wire.messages.describe_node_response import (
    DescribeNodeResponse,
    NodeClientTraffic,
    NodeController,
    NodeDirectory,
    NodeMetric,
    NodeRegistration,
    NodeReplica,
    NodeTopicTraffic,
    RecoveringLogDir,
)

PROBLEMS_MAX = 100
"""Maximum number of problem descriptions in a DescribeNode response. The limit bounds the response
of a broker with thousands of offline partitions."""


REPLICAS_MAX = 1_000
"""Maximum number of replicas in one DescribeNode response. A client that needs more sends further
requests."""

TOPICS_MAX = 10_000
"""Maximum number of topics whose traffic counters are in one DescribeNode response."""

NAMES_SHOWN = 3


class TopicCounters(Protocol):
    """Traffic counters of one topic (such as bytes in and out), which count from the start of this
    broker."""

    bytes_in: int
    bytes_out: int
    messages_in: int
    produce_requests: int
    fetch_requests: int


class DirectoryRecovery(NamedTuple):
    """Progress of the recovery of the logs in one log directory."""

    log_dir: str
    remaining_logs: int
    remaining_segments: int
    bytes_total: int
    bytes_done: int


def recovery_of(directories: Iterable[LogDirectory]) -> list[DirectoryRecovery]:
    """Return, for each log directory, the progress of the recovery of its logs."""
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
    """Yield a problem description for each offline partition, with its reason. Partitions with the
    same reason share one description.

    Replicas that lost acknowledged records are described first: they are online, but incomplete.
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
    """Handler of DescribeNode, version 0, which reports the state of this process.

    `state` returns the name of the broker's state, and `recovery` the progress of the log recovery
    in each directory. `problems` yields a description of each offline partition or other fault.
    `directories` returns the free space of each directory, `image` this broker's metadata, and
    `traffic` the counters of each topic. `quotas` counts the traffic of clients. Each of
    `metric_sources` returns numbers by name.
    """

    def __init__(
        self,
        *,
        node_id: NodeId,
        state: Callable[[], str],
        recovery: Callable[[], Iterable[DirectoryRecovery]],
        problems: Callable[[], Iterable[str]],
        metric_sources: Iterable[Callable[[], Mapping[str, float]]],
        directories: Callable[[], Iterable[FreeSpaceReport]] = tuple,
        replica_of: Callable[[TopicPartition], NodeReplica | None] = lambda partition: None,
        image: Callable[[], MetadataImage] = lambda: EMPTY,
        traffic: Callable[[], Iterable[tuple[str, TopicCounters]]] = tuple,
        quotas: RequestQuotas | None = None,
    ) -> None:
        self._node_id = node_id
        self._state = state
        self._recovery = recovery
        self._problems = problems
        self._directories = directories
        self._replica_of = replica_of
        self._image = image
        self._traffic = traffic
        self._quotas = quotas
        self._metric_sources = tuple(metric_sources)

    def handle(self, context: RequestContext, request: DescribeNodeRequest) -> DescribeNodeResponse:
        """Return a response with the state of this broker, the recovery progress of its logs,
        descriptions of its problems, and all status values by name."""
        metrics: dict[str, float] = {}
        for source in self._metric_sources:
            metrics.update(source())
        free_spaces = list(self._directories())
        problems = [problem for one in free_spaces for problem in one.problems]
        return DescribeNodeResponse(
            node_id=self._node_id,
            state=self._state(),
            version=VERSION,
            recovery=[RecoveringLogDir(**found._asdict()) for found in self._recovery()],
            problems=[*problems, *self._problems()][:PROBLEMS_MAX],
            warnings=[warning for one in free_spaces for warning in one.warnings],
            directories=[
                NodeDirectory(
                    path=one.path,
                    state=one.state.value,
                    total_bytes=one.space.total_bytes,
                    usable_bytes=one.space.usable_bytes,
                )
                for one in free_spaces
                if one.space is not None
            ],
            replicas=list(islice(self._replicas(request), REPLICAS_MAX)),
            registrations=self._registrations() if request.include_registrations else [],
            controllers=self._controllers() if request.include_registrations else [],
            traffic=self._topic_traffic() if request.include_traffic else [],
            clients=self._client_traffic(request.watch_clients_ms),
            metrics=[
                NodeMetric(name=name, value=float(value)) for name, value in sorted(metrics.items())
            ],
        )

    def _topic_traffic(self) -> list[NodeTopicTraffic]:
        return [
            NodeTopicTraffic(
                topic=topic,
                bytes_in=counters.bytes_in,
                bytes_out=counters.bytes_out,
                messages_in=counters.messages_in,
                produce_requests=counters.produce_requests,
                fetch_requests=counters.fetch_requests,
            )
            for topic, counters in islice(self._traffic(), TOPICS_MAX)
        ]

    def _client_traffic(self, watch_ms: int) -> list[NodeClientTraffic]:
        """Return the traffic counts of all clients. The counting continues for `watch_ms`
        milliseconds."""
        if self._quotas is None or watch_ms <= 0:
            return []
        self._quotas.watch(watch_ms)
        return [
            NodeClientTraffic(
                user=user,
                client_id=client_id,
                requests=counts.request_count,
                bytes_in=counts.bytes_in,
                bytes_out=counts.bytes_out,
                used_ns=counts.used_ns,
            )
            for (user, client_id), counts in self._quotas.traffic.counts.items()
        ]

    def _registrations(self) -> list[NodeRegistration]:
        """Return the details of all registered brokers that Kafka's own requests do not report."""
        return [
            NodeRegistration(broker_id=one.id, host=one.host, is_cordoned=one.is_cordoned)
            for one in self._image().brokers.values()
        ]

    def _controllers(self) -> list[NodeController]:
        """Return the software versions of all registered controllers. The list is empty if the
        feature level ottla.version is too low, because the metadata then has no registrations of
        controllers."""
        return [
            NodeController(controller_id=one.id, software_version=one.software_version)
            for one in self._image().controllers.values()
        ]

    def _replicas(self, request: DescribeNodeRequest) -> Iterator[NodeReplica]:
        """Yield a report for each requested replica that has a log on this broker."""
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
    """Return a report with the offsets of a replica's log, and its lost records if it has any.
    Returns None if this broker has no log of the replica."""
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
