"""Requests of a follower to its leader for offsets and leader epochs of the leader's log."""

from typing import TypeVar

import trio

from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.tier_start import epoch_before
from ottla.client.network.connection import BrokerConnection, ConnectionLostError
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError, row_of
from ottla.model.ids import Epoch, Offset, OffsetAndEpoch
from ottla.wire.codec_types import Message
from ottla.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.messages.list_offsets_response import ListOffsetsResponse
from ottla.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse

R = TypeVar("R", bound=Message)


class LeaderOffsets:
    """Requests to the leader about the log of one partition. Each raises ConnectionLostError if the
    leader does not respond, and RefusedError with the error code of the leader."""

    def __init__(
        self,
        connection: BrokerConnection,
        partition: Partition,
        *,
        leader_epoch: Epoch,
        timeout_s: float,
    ) -> None:
        self._connection = connection
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._timeout_s = timeout_s

    async def offset_of(self, timestamp: int) -> OffsetAndEpoch:
        """Return the leader's answer to a ListOffsets request with a special timestamp: an offset
        and its leader epoch."""
        asked = ListOffsetsPartition(
            partition_index=self._partition.index,
            current_leader_epoch=self._leader_epoch,
            timestamp=timestamp,
        )
        request = ListOffsetsRequest(
            replica_id=self._partition.local_id,
            topics=[ListOffsetsTopic(name=self._partition.topic, partitions=[asked])],
        )
        answer = await self._answer(request, ListOffsetsResponse)
        if len(answer.topics) != 1 or len(answer.topics[0].partitions) != 1:
            raise ProtocolError("the ListOffsets response does not match the request")
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise RefusedError(ErrorCode(row_of(found.error_code).code))
        return OffsetAndEpoch(Offset(found.offset), Epoch(found.leader_epoch))

    async def epoch_before(self, position: OffsetAndEpoch) -> Epoch:
        """Return the leader epoch of the record before a position. The position is an offset,
        together with the leader epoch of the record at that offset."""
        if position.epoch <= 0:
            return Epoch(0)
        asked = OffsetForLeaderPartition(
            partition=self._partition.index,
            current_leader_epoch=self._leader_epoch,
            leader_epoch=position.epoch - 1,
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=self._partition.local_id,
            topics=[OffsetForLeaderTopic(topic=self._partition.topic, partitions=[asked])],
        )
        answer = await self._answer(request, OffsetForLeaderEpochResponse)
        if len(answer.topics) != 1 or len(answer.topics[0].partitions) != 1:
            raise ProtocolError("the OffsetForLeaderEpoch response does not match the request")
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise RefusedError(ErrorCode(row_of(found.error_code).code))
        return epoch_before(
            position.offset,
            epoch=position.epoch,
            earlier_epoch=Epoch(found.leader_epoch),
            earlier_end=Offset(found.end_offset),
        )

    async def _answer(self, request: Message, response: type[R]) -> R:
        """Send a request to the leader, and return the response. Raises ConnectionLostError if no
        response arrives within the timeout."""
        with trio.move_on_after(self._timeout_s) as patience:
            answer = await self._connection.request(request, response)
        if patience.cancelled_caught:
            raise ConnectionLostError(f"{self._connection.address} did not answer")
        return answer
