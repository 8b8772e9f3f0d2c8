"""OffsetForLeaderEpoch: returns the end offset of a leader epoch. A client detects a truncation by
comparing this offset with its log, or with the offsets that it consumed.

Pure (KIP-101, KIP-320).
"""

from ottla.broker.replicas.partition_table import PartitionTable
from ottla.model.errors import RefusedError
from ottla.model.ids import Epoch
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.node.network.steps import StepPace, Steps, begun
from ottla.wire.messages.offset_for_leader_epoch_request import OffsetForLeaderEpochRequest
from ottla.wire.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


class LeaderEpochsApi:
    """Handler of OffsetForLeaderEpoch, versions 2 to 4."""

    def __init__(self, *, table: PartitionTable) -> None:
        self._table = table

    def handle(
        self, context: RequestContext, request: OffsetForLeaderEpochRequest
    ) -> HandlerResult:
        """Return the end offset of each requested leader epoch. The entry is (-1, -1) if the epoch
        is unknown."""
        return begun(self._answer(request))

    def _answer(self, request: OffsetForLeaderEpochRequest) -> Steps[OffsetForLeaderEpochResponse]:
        pace = StepPace()
        response = OffsetForLeaderEpochResponse()
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                answer = EpochEndOffset(partition=asked.partition)
                answers.append(answer)
                if pace.is_due():
                    yield
                try:
                    partition = self._table.find(topic.topic, asked.partition)
                    log = partition.leader_log(asked.current_leader_epoch)
                except RefusedError as error:
                    answer.error_code = error.code
                    continue
                if asked.leader_epoch == partition.leader_epoch:
                    # The current epoch ends at the log end offset.
                    answer.leader_epoch, answer.end_offset = asked.leader_epoch, log.end_offset
                    continue
                found = log.end_offset_for_epoch(Epoch(asked.leader_epoch))
                answer.leader_epoch, answer.end_offset = found.epoch, found.offset
            response.topics.append(
                OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers)
            )
            if pace.is_due():
                yield
        return response
