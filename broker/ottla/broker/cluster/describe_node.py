"""DescribeNode (our own, key 20000): what this process is doing, from before it serves.  Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ottla.broker.network.dispatch import RequestContext
from ottla.model.ids import NodeId
from ottla.wire.messages.describe_node_request import DescribeNodeRequest
from ottla.wire.messages.describe_node_response import (
    DescribeNodeResponse,
    NodeMetric,
    RecoveringLogDir,
)

PROBLEMS_MAX = 100
"""A broker with ten thousand offline partitions need not name them all."""


class DirectoryRecovery(NamedTuple):
    """How far the recovery of one log directory has come."""

    log_dir: str
    remaining_logs: int
    remaining_segments: int
    bytes_total: int
    bytes_done: int


class DescribeNodeApi:
    """Serves DescribeNode 0.

    `state` names what the broker is at (Kafka's broker states), `recovery` its directories,
    `problems` says in sentences what does not serve and why, and each of `metric_sources` is asked
    for its plain numbers.
    """

    def __init__(
        self,
        *,
        node_id: NodeId,
        state: Callable[[], str],
        recovery: Callable[[], Iterable[DirectoryRecovery]],
        problems: Callable[[], Iterable[str]],
        metric_sources: Iterable[Callable[[], Mapping[str, float]]],
    ) -> None:
        self._node_id = node_id
        self._state = state
        self._recovery = recovery
        self._problems = problems
        self._metric_sources = tuple(metric_sources)

    def handle(self, context: RequestContext, request: DescribeNodeRequest) -> DescribeNodeResponse:
        """Answer with the state, the recovery, what is wrong, and every number, by name."""
        metrics: dict[str, float] = {}
        for source in self._metric_sources:
            metrics.update(source())
        return DescribeNodeResponse(
            node_id=self._node_id,
            state=self._state(),
            recovery=[RecoveringLogDir(**found._asdict()) for found in self._recovery()],
            problems=list(self._problems())[:PROBLEMS_MAX],
            metrics=[
                NodeMetric(name=name, value=float(value)) for name, value in sorted(metrics.items())
            ],
        )
