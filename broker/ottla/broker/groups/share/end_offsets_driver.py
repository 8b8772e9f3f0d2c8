"""Lookup of the end offsets of partitions: in the logs of this broker, or with ListOffsets at their
leaders."""

from collections.abc import Callable, Sequence

import trio

from ottla.broker.cluster.peer_connection_driver import PeerConnection
from ottla.broker.groups.share.end_offsets import EndOffsetAnswers
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.client.network.login import starter_of
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.ids import NO_NODE, NodeId, TopicPartition
from ottla.model.settings.broker import BrokerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.part_registry import PartRegistry
from ottla.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.messages.list_offsets_response import ListOffsetsResponse
from ottla.wire.offset_timestamps import LATEST

TIMEOUT_S = 10.0
"""Maximum time in seconds to wait for the responses of all leaders about end offsets. If a leader
is frozen, the description of a share group is delayed by this time."""

CONSUMER = -1

UNKNOWN = ErrorCode.LEADER_NOT_AVAILABLE
"""Result of an end-offset lookup for a partition whose leader did not answer."""


class EndOffsetsDriver:
    """Implementation of `EndOffsets`. Each lookup opens a connection to every leader that it needs.

    Only the description of share groups uses it, so no connection is kept.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        table: PartitionTable,
        errors: UnexpectedErrors,
    ) -> None:
        self._config = config
        self._table = table
        self._errors = errors
        self._nursery: trio.Nursery | None = None
        self._start_soon: Callable[..., None]

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task that looks up end offsets at the leaders."""
        parts.task("end offsets of share partitions", self.run)

    async def run(self) -> None:
        """Look up end offsets at the leaders of partitions, as requested, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._start_soon = starter_of(nursery)
            self._nursery = nursery
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def ask(
        self, wanted: Sequence[TopicPartition], on_done: Callable[[EndOffsetAnswers], None]
    ) -> None:
        """Look up the high watermarks of partitions at their leaders, and call `on_done` with
        them."""
        answers: dict[TopicPartition, int | ErrorCode] = dict.fromkeys(wanted, UNKNOWN)
        for one in wanted:
            own = self._table.by_name.get(one.topic, {}).get(one.partition)
            if own is not None and own.is_leader and own.log is not None:
                answers[one] = own.high_watermark
        if self._nursery is None or all(answers[one] is not UNKNOWN for one in wanted):
            on_done(answers)
        else:
            self._start_soon(self._ask, answers, on_done)

    async def _ask(
        self,
        answers: dict[TopicPartition, int | ErrorCode],
        on_done: Callable[[EndOffsetAnswers], None],
    ) -> None:
        try:
            with trio.move_on_after(TIMEOUT_S):
                async with trio.open_nursery() as nursery:
                    for leader, wanted in self._by_leader(answers).items():
                        nursery.start_soon(self._ask_leader, leader, wanted, answers)
        finally:
            on_done(answers)

    def _by_leader(
        self, wanted: dict[TopicPartition, int | ErrorCode]
    ) -> dict[NodeId, list[TopicPartition]]:
        found: dict[NodeId, list[TopicPartition]] = {}
        for one in wanted:
            if wanted[one] is not UNKNOWN:
                continue
            topic = self._table.image.topic(one.topic)
            state = None if topic is None else topic.partitions.get(one.partition)
            if state is not None and state.leader != NO_NODE:
                found.setdefault(state.leader, []).append(one)
        return found

    async def _ask_leader(
        self,
        leader: NodeId,
        wanted: list[TopicPartition],
        answers: dict[TopicPartition, int | ErrorCode],
    ) -> None:
        link = PeerConnection(
            leader,
            self._config,
            lambda: self._table.image,
            purpose="end-offsets",
        )
        try:
            connection = await link.connected()
            request = _request_of(wanted)
            version = connection.version_of(request.API_KEY)
            answer = await connection.request(request, ListOffsetsResponse, version)
            for topic in answer.topics:
                for one in topic.partitions:
                    code = ErrorCode(one.error_code)
                    at = TopicPartition(topic.name, one.partition_index)
                    if at in answers:
                        answers[at] = one.offset if code is ErrorCode.NONE else code
        except RefusedError as refusal:
            answers.update(dict.fromkeys(wanted, refusal.code))
        except (OttlaError, OSError):
            pass  # LEADER_NOT_AVAILABLE stays the answer.
        except Exception as error:
            self._errors.note("end offsets", leader, error)
        finally:
            await link.close()


def _request_of(wanted: list[TopicPartition]) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for one in wanted:
        asked = ListOffsetsPartition(partition_index=one.partition, timestamp=LATEST)
        topics.setdefault(one.topic, []).append(asked)
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
    )
