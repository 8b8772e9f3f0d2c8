"""DeleteRecords: raises the start of a log; whole segments below it go by and by (KIP-107).

Pure but for the log it awaits.  A partition with followers is answered with what they have deleted
by now: they follow with their next fetch.
"""

from ottla.broker.dispatch import RequestContext
from ottla.broker.partition_table import PartitionTable
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.wire.messages.delete_records_request import DeleteRecordsRequest
from ottla.wire.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1
"""Asked for as an offset: delete all that is committed."""


class DeleteRecordsApi:
    """Serves DeleteRecords 0-2."""

    def __init__(self, *, table: PartitionTable) -> None:
        self._table = table

    async def handle(
        self, context: RequestContext, request: DeleteRecordsRequest
    ) -> DeleteRecordsResponse:
        """Delete partition by partition."""
        response = DeleteRecordsResponse()
        for topic in request.topics:
            results = []
            for asked in topic.partitions:
                result = DeleteRecordsPartitionResult(
                    partition_index=asked.partition_index, low_watermark=-1
                )
                results.append(result)
                try:
                    result.low_watermark = await self._delete(
                        topic.name, asked.partition_index, Offset(asked.offset)
                    )
                except RefusedError as error:
                    result.error_code = error.code
            response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
        return response

    async def _delete(self, topic: str, index: int, asked: Offset) -> Offset:
        partition = self._table.find(topic, index)
        log = partition.leader_log()
        if "delete" not in partition.config.cleanup_policy:
            raise RefusedError(
                ErrorCode.POLICY_VIOLATION, "cleanup.policy of the topic does not include delete"
            )
        before = log.high_watermark if asked == HIGH_WATERMARK else asked
        if not 0 <= before <= log.high_watermark:
            raise RefusedError(ErrorCode.OFFSET_OUT_OF_RANGE)
        await log.delete_records_before(before)
        # The partition may have been taken away while the log wrote its new start.
        partition.leader_log()
        return partition.low_watermark
