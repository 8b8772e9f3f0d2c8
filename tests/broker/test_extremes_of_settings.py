"""Extremes of every accepted setting and quota, used afterwards by the requests they affect.

A walked table: each quota at its least and largest limit, each setting that a running cluster
accepts at its least and largest value. Every request must be answered: no connection may end, no
response may be an unknown server error, and a limited client can still undo each change.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from ottla.model.limits import INT32_MAX, INT64_MAX
from ottla.model.settings.declare import BOUNDS, Definition, SettingKind
from ottla.model.settings.dynamic import broker_definitions
from ottla.model.settings.group_overrides import GROUP_DEFINITIONS
from ottla.model.settings.quotas import CLIENT_KEYS, IP_KEYS, limit_problem
from ottla.model.settings.resources import AlterOperation, ConfigKind
from ottla.model.settings.storage.topic import TOPIC_DEFINITIONS
from ottla.model.settings.telemetry.client_metrics import CLIENT_METRICS_DEFINITIONS
from ottla.testing.in_process import InProcessCluster, open_in_process_cluster
from ottla.wire.apis import API, response_class
from ottla.wire.batch_builder import RecordToBuild, build_batch
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Message
from ottla.wire.headers import decode_response_header, encode_request_header, frame
from ottla.wire.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_client_quotas_request import DescribeClientQuotasRequest
from ottla.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
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
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import ProduceResponse

TOPIC = "extremes"
CLIENT_ID = "limited"
UNKNOWN_SERVER_ERROR = -1
ANSWER_WITHIN_S = 120.0
LARGE_BATCH = build_batch([RecordToBuild(1_700_000_000_000, b"key", b"v" * 400_000)])
"""Large enough for a throttle of 2^31 ms at one byte a second, with a few of them."""
SMALL_BATCH = build_batch([RecordToBuild(1_700_000_000_000, b"key", b"v" * 4_000)])
"""Batch that is written once for each extreme of a setting, and read again after each later one."""

LIMITS = (5e-324, 1e-300, 0.001, 1.0, 100.0, float(INT32_MAX), float(INT64_MAX), 1.79e308)
"""Limits, of which the least and the largest that a quota accepts are used."""

MANY_PARTITIONS = 2_500
"""Creations of one request that owe 2^31 ms at a thousandth of a mutation a second."""


async def ask(
    cluster: InProcessCluster, request: Message, version: int, *, client_id: str = CLIENT_ID
) -> Any:
    """Send a request on a connection of its own and return the answer.

    A throttled connection is not read again before the announced throttle time ends.
    """
    host, _, port = cluster.bootstrap.split(",")[0].rpartition(":")
    key = type(request).API_KEY
    header = encode_request_header(key, version, 1, client_id)
    sent = b"".join(frame([header + encode(request, version)]))  # type: ignore[arg-type]
    with trio.fail_after(ANSWER_WITHIN_S):
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(sent)
            data = b""
            while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
                received = await stream.receive_some()
                assert received, f"{type(request).__name__} ended its connection"
                data += received
    _, body_at = decode_response_header(key, version, data[4:])
    return decode(response_class(key), version, data[4:], body_at)


def codes_in(answer: Any) -> Iterator[int]:
    """Yield every error code of an answer."""
    for name in getattr(answer, "__slots__", ()):
        value: Any = getattr(answer, name, None)
        if name == "error_code" or name == "topic_config_error_code":
            yield value
        elif isinstance(value, list):
            for one in value:
                yield from codes_in(one)
        elif hasattr(value, "__slots__") and not isinstance(value, int | str | bytes):
            yield from codes_in(value)


PRODUCED_FOR_A_QUOTA = 7
"""Number of Produce requests that owe more than 2^31 ms at one byte a second."""


def requests(produce_count: int, *, creates_topics: bool = True) -> Iterator[tuple[Message, int]]:
    """Yield the requests that settings and quotas touch, with their versions."""
    topic = MetadataRequestTopic(name=TOPIC)
    yield MetadataRequest(topics=[topic]), 9
    batch = LARGE_BATCH if produce_count == PRODUCED_FOR_A_QUOTA else SMALL_BATCH
    produced = PartitionProduceData(index=0, records=batch)
    for _ in range(produce_count):
        data = [TopicProduceData(name=TOPIC, partition_data=[produced])]
        yield ProduceRequest(acks=1, timeout_ms=1_000, topic_data=data), 9
    for _ in range(min(3, produce_count)):
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=INT32_MAX)
        topics = [FetchTopic(topic=TOPIC, partitions=[wanted])]
        yield FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=INT32_MAX, topics=topics), 11
    latest = ListOffsetsPartition(partition_index=0, timestamp=-1)
    offsets = [ListOffsetsTopic(name=TOPIC, partitions=[latest])]
    yield ListOffsetsRequest(replica_id=-1, topics=offsets), 5
    if creates_topics:
        made = CreatableTopic(name="made", num_partitions=2, replication_factor=1)
        yield CreateTopicsRequest(topics=[made], timeout_ms=5_000), 5
        yield DeleteTopicsRequest(topics=[DeleteTopicState(name="made")], timeout_ms=5_000), 6
    described = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((ConfigKind.TOPIC, TOPIC), (ConfigKind.BROKER, "1"))
    ]
    yield DescribeConfigsRequest(resources=described, include_synonyms=True), 4
    yield DescribeClientQuotasRequest(components=[], strict=False), 1


async def use(
    cluster: InProcessCluster, what: str, *, produce_count: int = 1, creates_topics: bool = True
) -> None:
    """Send every request, and fail if one of them is not answered as an expected one."""
    for request, version in requests(produce_count, creates_topics=creates_topics):
        answer = await ask(cluster, request, version)
        name = type(request).__name__
        assert UNKNOWN_SERVER_ERROR not in set(codes_in(answer)), (what, name)
        assert 0 <= getattr(answer, "throttle_time_ms", 0) <= INT32_MAX, (what, name)


@asynccontextmanager
async def cluster_with_a_topic() -> AsyncIterator[InProcessCluster]:
    async with open_in_process_cluster(broker_count=1) as cluster:
        made = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        await ask(cluster, CreateTopicsRequest(topics=[made], timeout_ms=5_000), 5)
        yield cluster


async def limit(cluster: InProcessCluster, key: str, value: float | None) -> int:
    """Set or take back a quota of the client; return the error code."""
    entity = EntityData(entity_type="client-id", entity_name=CLIENT_ID)
    if key in IP_KEYS:
        entity = EntityData(entity_type="ip", entity_name="127.0.0.1")
    change = OpData(key=key, value=value or 0.0, remove=value is None)
    request = AlterClientQuotasRequest(entries=[EntryData(entity=[entity], ops=[change])])
    answer = await ask(cluster, request, 1)
    code: int = answer.entries[0].error_code
    return code


@pytest.mark.parametrize("key", sorted(CLIENT_KEYS | IP_KEYS))
async def test_the_extremes_of_a_quota_are_used(key: str) -> None:
    """A throttle above 2^31 ms failed after the append, and the producer wrote again."""
    accepted = [one for one in LIMITS if limit_problem(key, one) is None]
    if key in IP_KEYS:
        accepted = accepted[-1:]  # a low one closes connections, by design
    async with cluster_with_a_topic() as cluster:
        for value in (accepted[0], accepted[-1]):
            assert await limit(cluster, key, value) == 0
            if key == "controller_mutation_rate":
                many = CreatableTopic(
                    name="many", num_partitions=MANY_PARTITIONS, replication_factor=1
                )
                for version in (5, 7):
                    request = CreateTopicsRequest(
                        topics=[many], timeout_ms=5_000, validate_only=True
                    )
                    answer = await ask(cluster, request, version)
                    assert UNKNOWN_SERVER_ERROR not in set(codes_in(answer)), value
            await use(cluster, f"{key}={value}", produce_count=PRODUCED_FOR_A_QUOTA)
            assert await limit(cluster, key, None) == 0


def extremes(definition: Definition) -> Sequence[str]:
    """Return the least and the largest value of a setting, or every choice of one."""
    if definition.kind is SettingKind.BOOLEAN:
        return ("true", "false")
    if definition.one_of:
        return definition.one_of
    if definition.kind is SettingKind.DOUBLE:
        least = 0.0 if definition.at_least is None else definition.at_least
        return (repr(least), repr(definition.at_most or 1.7976931348623157e308))
    if definition.kind in BOUNDS:
        lowest, highest = BOUNDS[definition.kind]
        if definition.at_least is not None:
            lowest = max(lowest, int(definition.at_least))
        if definition.at_most is not None:
            highest = min(highest, int(definition.at_most))
        return (str(lowest), str(highest))
    return ()


TABLE = [
    (kind, name, definition)
    for kind, name, known in (
        (ConfigKind.BROKER, "1", broker_definitions()),
        (ConfigKind.TOPIC, TOPIC, TOPIC_DEFINITIONS),
        (ConfigKind.GROUP, "a-group", GROUP_DEFINITIONS),
        (ConfigKind.CLIENT_METRICS, "a-subscription", CLIENT_METRICS_DEFINITIONS),
    )
    for definition in known.values()
    if kind is not ConfigKind.BROKER or definition.is_dynamic
]
PARTS = 6


async def alter(cluster: InProcessCluster, kind: int, name: str, change: AlterableConfig) -> int:
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
    answer = await ask(cluster, IncrementalAlterConfigsRequest(resources=[resource]), 1)
    code: int = answer.responses[0].error_code
    return code


@pytest.mark.parametrize("part", range(PARTS))
async def test_the_extremes_of_a_setting_are_used(part: int) -> None:
    used = 0
    async with cluster_with_a_topic() as cluster:
        for kind, name, definition in TABLE[part::PARTS]:
            for text in extremes(definition):
                key = definition.key
                change = AlterableConfig(name=key, config_operation=AlterOperation.SET, value=text)
                if await alter(cluster, kind, name, change):
                    continue  # refused, as the other checks say
                used += 1
                # Other topics and groups do not have the setting of this one.
                await use(cluster, f"{key}={text}", creates_topics=kind is ConfigKind.BROKER)
                change = AlterableConfig(name=key, config_operation=AlterOperation.DELETE)
                assert await alter(cluster, kind, name, change) == 0, f"{key}={text}"
    assert used >= 10


def test_the_requests_are_of_versions_that_are_served() -> None:
    for request, version in requests(1):
        api = API[type(request).API_KEY]
        assert api.lowest <= version <= api.latest_stable
    assert ProduceResponse.API_KEY == ProduceRequest.API_KEY
