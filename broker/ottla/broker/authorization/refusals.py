"""The answer to a request that is refused as a whole.  Pure.

Where an answer has an error of the whole it is told there.  In others each part that was asked for
has the code, as in Kafka.
"""

from collections.abc import Callable
from typing import Any

from ottla.broker.authorization.elements import ELEMENTS, NO_NODE, NO_OFFSET, NO_PORT
from ottla.broker.network.steps import StepPace, Steps
from ottla.model.errors import ErrorCode
from ottla.wire import apis
from ottla.wire.apis import response_class
from ottla.wire.codec_types import Message
from ottla.wire.messages import (
    add_partitions_to_txn_response,
    alter_replica_log_dirs_response,
    find_coordinator_response,
    join_group_response,
    offset_fetch_response,
    write_txn_markers_response,
)

NULL_PROTOCOL_FROM = 7
"""The first version of JoinGroup whose answer may have no protocol."""

ERROR_OF_ALL_FROM = 2
"""The first version of OffsetFetch with an error of the whole."""


def refused(request: Message, code: ErrorCode, version: int, reason: str) -> Steps[Message]:
    """Return the answer to a request of which nothing is served.

    The reason is told where the answer has room for it.
    """
    key = request.API_KEY
    special = _SPECIAL.get(key)
    if special is not None:
        return (yield from special(request, code, version, StepPace()))
    kind = response_class(key)
    response = kind()
    if hasattr(response, "error_code"):
        response.error_code = code
        if hasattr(response, "error_message"):
            response.error_message = reason
        return response
    elements = ELEMENTS[key]
    places = getattr(response, elements.into)
    pace = StepPace()
    for part in getattr(request, elements.field):
        places.append((yield from elements.place_of(part, code, pace)))
    return response


def _join_group(request: Any, code: ErrorCode, version: int, pace: StepPace) -> Steps[Message]:
    yield from ()
    return join_group_response.JoinGroupResponse(
        error_code=code,
        protocol_name=None if version >= NULL_PROTOCOL_FROM else "",
        member_id=request.member_id,
    )


def _find_coordinator(
    request: Any, code: ErrorCode, version: int, pace: StepPace
) -> Steps[Message]:
    yield from ()
    return find_coordinator_response.FindCoordinatorResponse(
        error_code=code, node_id=NO_NODE, port=NO_PORT
    )


def _offset_fetch(request: Any, code: ErrorCode, version: int, pace: StepPace) -> Steps[Message]:
    response = offset_fetch_response.OffsetFetchResponse(error_code=code)
    for topic in request.topics or () if version < ERROR_OF_ALL_FROM else ():
        partitions = []
        for index in topic.partition_indexes:
            partitions.append(
                offset_fetch_response.OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=NO_OFFSET,
                    metadata="",
                    error_code=code,
                )
            )
            if pace.is_due():
                yield
        response.topics.append(
            offset_fetch_response.OffsetFetchResponseTopic(name=topic.name, partitions=partitions)
        )
    return response


def _add_partitions(request: Any, code: ErrorCode, version: int, pace: StepPace) -> Steps[Message]:
    response = add_partitions_to_txn_response.AddPartitionsToTxnResponse(error_code=code)
    if version >= apis.ADD_PARTITIONS_OF_BROKERS_FROM:
        return response
    for topic in request.v3_and_below_topics:
        results = []
        for index in topic.partitions:
            results.append(
                add_partitions_to_txn_response.AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=code
                )
            )
            if pace.is_due():
                yield
        response.results_by_topic_v3_and_below.append(
            add_partitions_to_txn_response.AddPartitionsToTxnTopicResult(
                name=topic.name, results_by_partition=results
            )
        )
    return response


def _alter_log_dirs(request: Any, code: ErrorCode, version: int, pace: StepPace) -> Steps[Message]:
    response = alter_replica_log_dirs_response.AlterReplicaLogDirsResponse()
    for directory in request.dirs:
        for topic in directory.topics:
            results = []
            for index in topic.partitions:
                results.append(
                    alter_replica_log_dirs_response.AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=code
                    )
                )
                if pace.is_due():
                    yield
            response.results.append(
                alter_replica_log_dirs_response.AlterReplicaLogDirTopicResult(
                    topic_name=topic.name, partitions=results
                )
            )
            if pace.is_due():
                yield
    return response


def _markers(request: Any, code: ErrorCode, version: int, pace: StepPace) -> Steps[Message]:
    response = write_txn_markers_response.WriteTxnMarkersResponse()
    for marker in request.markers:
        topics = []
        for topic in marker.topics:
            partitions = []
            for index in topic.partition_indexes:
                partitions.append(
                    write_txn_markers_response.WritableTxnMarkerPartitionResult(
                        partition_index=index, error_code=code
                    )
                )
                if pace.is_due():
                    yield
            topics.append(
                write_txn_markers_response.WritableTxnMarkerTopicResult(
                    name=topic.name, partitions=partitions
                )
            )
            if pace.is_due():
                yield
        response.markers.append(
            write_txn_markers_response.WritableTxnMarkerResult(
                producer_id=marker.producer_id, topics=topics
            )
        )
    return response


_SPECIAL: dict[int, Callable[[Any, ErrorCode, int, StepPace], Steps[Message]]] = {
    apis.JOIN_GROUP: _join_group,
    apis.FIND_COORDINATOR: _find_coordinator,
    apis.OFFSET_FETCH: _offset_fetch,
    apis.ADD_PARTITIONS_TO_TXN: _add_partitions,
    apis.ALTER_REPLICA_LOG_DIRS: _alter_log_dirs,
    apis.WRITE_TXN_MARKERS: _markers,
}
"""Answers whose parts are not those of `ELEMENTS`, or with an error of the whole only later."""
