"""Client of a system with tiered storage: requests on the wire, without a client library's checks.

Each request has a connection of its own. Topics have one partition.
"""

import time
from pathlib import Path
from typing import Any, NamedTuple

from ottla.bench.requests import answer_to, frame_of, topic_id_of
from ottla.model.errors import ErrorCode
from ottla.wire import codec, headers
from ottla.wire.apis import response_class
from ottla.wire.batch import batches
from ottla.wire.batch_builder import build_batch
from ottla.wire.codec_types import Message
from ottla.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.offset_timestamps import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
)

TIMEOUT_S, LOOK_AGAIN_S = 30.0, 0.05
REQUEST_TIMEOUT_MS = 10_000
FETCH_BYTES = 1 << 20
TOPIC_RESOURCE = 2
SET, REMOVE = 0, 1


class TierOffsets(NamedTuple):
    """Offsets of a partition: log start, local start, last copied, first not copied, and end."""

    start: int
    local: int
    tiered: int
    pending: int
    end: int


class FetchOutcome(NamedTuple):
    """Outcome of a fetch of one partition."""

    error: ErrorCode
    has_offset: bool
    """True if the first batch has the requested offset."""
    log_start_offset: int
    high_watermark: int
    aborted: tuple[int, ...]
    """First offsets of the aborted transactions."""


class TierClient:
    """Client of one system, and its object store."""

    def __init__(self, name: str, bootstrap: str, store: Path) -> None:
        host, _, port = bootstrap.split(",")[0].rpartition(":")
        self.name = name
        self.bootstrap = bootstrap
        self._address = (host, int(port))
        self._store = store

    def ask(self, request: Message, version: int) -> Any:
        """Send a request, and return the response."""
        answer = answer_to(self._address, frame_of(request, version))
        _, at = headers.decode_response_header(request.API_KEY, version, answer)
        kind = response_class(request.API_KEY)
        return codec.decode(kind, version, memoryview(answer)[at:])

    def create(self, topic: str, settings: dict[str, str]) -> tuple[ErrorCode, str]:
        """Create a topic with settings; return the error code and message."""
        configs = [CreatableTopicConfig(name=key, value=text) for key, text in settings.items()]
        asked = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=configs)
        (answer,) = self.ask(CreateTopicsRequest(topics=[asked]), 7).topics
        return ErrorCode(answer.error_code), answer.error_message or ""

    def alter(self, topic: str, settings: dict[str, str | None]) -> tuple[ErrorCode, str]:
        """Change settings of a topic, and remove those with the value None; return the error code
        and message."""
        configs = [
            AlterableConfig(name=key, config_operation=REMOVE if text is None else SET, value=text)
            for key, text in settings.items()
        ]
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configs=configs
        )
        (answer,) = self.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        return ErrorCode(answer.error_code), answer.error_message or ""

    def append(self, topic: str, count: int, *, first_ms: int, value: bytes) -> None:
        """Append a batch of records with successive timestamps. Waits for a leader."""
        batch = build_batch([(first_ms + at, None, value) for at in range(count)])
        data = TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=0, records=batch)]
        )
        request = ProduceRequest(acks=-1, timeout_ms=REQUEST_TIMEOUT_MS, topic_data=[data])
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            ((part,),) = [one.partition_responses for one in self.ask(request, 9).responses]
            if not part.error_code:
                return
            assert time.monotonic() < deadline, ErrorCode(part.error_code)
            time.sleep(LOOK_AGAIN_S)

    def offset(self, topic: str, timestamp: int, version: int = 11) -> tuple[ErrorCode, int, int]:
        """Return error code, offset and leader epoch for a timestamp."""
        part = ListOffsetsPartition(timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(name=topic, partitions=[part])],
            timeout_ms=REQUEST_TIMEOUT_MS,
        )
        ((found,),) = [one.partitions for one in self.ask(request, version).topics]
        return ErrorCode(found.error_code), found.offset, found.leader_epoch

    def offsets(self, topic: str) -> TierOffsets:
        """Return the offsets of both tiers."""
        timestamps = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD, LATEST)
        return TierOffsets(*(self.offset(topic, each)[1] for each in timestamps))

    def wait_for(self, topic: str, *expected: int) -> None:
        """Wait until a topic has the expected offsets of both tiers."""
        deadline = time.monotonic() + TIMEOUT_S
        while (found := self.offsets(topic)) != expected and time.monotonic() < deadline:
            time.sleep(LOOK_AGAIN_S)
        assert found == expected, f"{found}, not {expected}"

    def wait_for_copies(self, topic: str, count: int) -> None:
        """Wait until the object store has a number of segments of a topic."""
        deadline = time.monotonic() + TIMEOUT_S
        while (found := self._copies(topic)) != count and time.monotonic() < deadline:
            time.sleep(LOOK_AGAIN_S)
        assert found == count

    def _copies(self, topic: str) -> int:
        return sum(f"/{topic}-" in str(path) for path in self._store.rglob("*.log"))

    def fetch(self, topic: str, offset: int, isolation_level: int = 0) -> FetchOutcome:
        """Fetch records, or an error. A fetch in the object store may need several requests."""
        part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=isolation_level,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic=topic, topic_id=topic_id_of(self._address, topic), partitions=[part]
                )
            ],
        )
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            ((found,),) = [one.partitions for one in self.ask(request, 17).responses]
            records = memoryview(found.records or b"")
            if records or found.error_code or time.monotonic() > deadline:
                break
        has_offset = False
        if records:
            _, first = next(batches(records, is_partial_end_allowed=True))
            has_offset = first.base_offset <= offset <= first.last_offset
        return FetchOutcome(
            ErrorCode(found.error_code),
            has_offset,
            found.log_start_offset,
            found.high_watermark,
            tuple(one.first_offset for one in found.aborted_transactions or ()),
        )

    def delete_records(self, topic: str, before: int) -> tuple[ErrorCode, int]:
        """Delete the records before an offset; return the error code and the low watermark."""
        part = DeleteRecordsPartition(partition_index=0, offset=before)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[part])],
            timeout_ms=REQUEST_TIMEOUT_MS,
        )
        ((found,),) = [one.partitions for one in self.ask(request, 2).topics]
        return ErrorCode(found.error_code), found.low_watermark
