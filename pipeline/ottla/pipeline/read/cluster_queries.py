"""The driver's requests to the cluster, for topics, partitions and offsets, and its commits.

All calls are blocking, as Spark requires.  A failed request is repeated for up to
`default.api.timeout.ms` if a broker has responded before.  Until then, the timeout is shorter,
because a wrong address is the most likely cause.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar

from ottla.client.fetch.offset_lookup import find_offsets
from ottla.client.groups.coordinator import Coordinator, open_coordinator
from ottla.client.groups.group_offsets import Committed, commit_offsets
from ottla.client.network.cluster import Cluster, open_cluster, raise_for
from ottla.client.network.retries import retry_until_timeout
from ottla.model.errors import ConfigError, ErrorCode, row_of
from ottla.model.ids import ZERO_UUID, Epoch, Offset, OffsetAndEpoch, TopicPartition, uuid_text
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.model.settings.resources import ConfigKind
from ottla.pipeline.loop_thread import start_loop_thread
from ottla.pipeline.read.epoch_ends import find_epoch_ends
from ottla.pipeline.read.offsets import LATEST, StreamPosition
from ottla.pipeline.read.read_options import ReadOptions
from ottla.pipeline.read.source_options import Assign, Subscribe, SubscribePattern, Topics
from ottla.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from ottla.wire.messages.describe_configs_response import DescribeConfigsResponse
from ottla.wire.messages.metadata_response import MetadataResponse

T = TypeVar("T")

FIRST_ANSWER_TIMEOUT_S = 15.0
"""Time in seconds within which the first broker of a cluster must respond. With a longer time, the
user of a mistyped address waits longer. With a shorter time, a broker that is still starting is
missed."""
COMMIT_TIMEOUT_S = 5.0
RETRY_WAIT_S = 0.1
POLICY = "cleanup.policy"
LOOK_AGAIN_S = 3.0
"""Time in seconds after which a topic's metadata is requested again if no offset was received. The
topic may have been deleted."""


class FoundTopics(NamedTuple):
    """Result of looking up the topics in the options of a query: the partitions that exist, and the
    names that do not exist."""

    partitions: frozenset[TopicPartition]
    topic_ids: Mapping[str, str]
    missing: tuple[str, ...]
    """Requested topics or partitions that do not exist in the cluster."""


class ClusterQueries:
    """Blocking calls to a cluster, over connections that an event loop in another thread owns."""

    def __init__(
        self, options: ReadOptions, *, first_answer_timeout_s: float = FIRST_ANSWER_TIMEOUT_S
    ) -> None:
        self._config = options.consumer_config()
        self._first_answer_timeout_s = first_answer_timeout_s
        self._isolation_level = options.isolation_level
        self._drops_replays = options.drop_replays
        self._keep_all: set[str] = set()
        """Names of the topics that are known not to be compacted."""
        self._has_answered = False
        self._loop = start_loop_thread()
        self._cluster: Cluster = self._loop.enter(
            open_cluster(
                parse_bootstrap(options.bootstrap),
                client_id=self._config.client_id,
                request_timeout_s=self._config.request_timeout_ms / 1_000,
                login=self._config.login(),
                tls=self._config.tls(),
            )
        )
        self._coordinators: dict[str, Coordinator] = {}

    def close(self) -> None:
        """Close all connections to the cluster, and end the thread of the event loop."""
        self._loop.close()

    def find_topics(self, topics: Topics) -> FoundTopics:
        """Return the partitions of the requested topics that exist, and the requested names that do
        not exist."""
        return self._call(lambda: self._find_topics(topics))

    def offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return, for each partition, the first offset whose record has a timestamp at or after a
        time in ms. The timestamp -2 requests the first offset; -1 requests the end offset.

        The result is -1 if a partition has no record at or after the timestamp.
        """
        return self._call(lambda: self._find_offsets(asked)) if asked else {}

    def ends(self, topics: Topics) -> StreamPosition:
        """Return the present end offset of each partition's log: its high watermark, or its last
        stable offset with read_committed.

        Topics that are deleted during the call are omitted.
        """

        async def attempt() -> StreamPosition:
            found = await self._find_topics(topics)
            ends = await self._find_offsets(dict.fromkeys(found.partitions, LATEST))
            return StreamPosition(ends, dict(found.topic_ids))

        return self._call(attempt)

    def epoch_ends(
        self, asked: Mapping[TopicPartition, Epoch]
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """Return, for each partition, the largest leader epoch in the leader's log up to the epoch
        in `asked`, and the end offset of that epoch."""
        return self._call(lambda: find_epoch_ends(self._cluster, asked))

    def commit(self, group: str, position: StreamPosition, note: str) -> None:
        """Commit the position of a query to a group without members, so that other tools show the
        lag of the query. `note` is the metadata of the commit."""
        offsets = {
            at: Committed(Offset(offset), metadata=note) for at, offset in position.offsets.items()
        }
        if not offsets:
            return
        if group not in self._coordinators:
            self._coordinators[group] = self._loop.enter(
                open_coordinator(self._cluster, group, client_id=self._config.client_id)
            )
        coordinator = self._coordinators[group]

        async def attempt() -> None:
            await commit_offsets(coordinator, offsets, timeout_s=COMMIT_TIMEOUT_S)

        self._loop.call(coordinator.until_it_answers, attempt, COMMIT_TIMEOUT_S)

    @property
    def _timeout_s(self) -> float:
        longest_s = self._config.default_api_timeout_ms / 1_000
        return longest_s if self._has_answered else min(longest_s, self._first_answer_timeout_s)

    async def _find_topics(self, topics: Topics) -> FoundTopics:
        names = None
        if isinstance(topics, Subscribe):
            names = set(topics.topics)
        elif isinstance(topics, Assign):
            names = {at.topic for at in topics.partitions}
        answer = await self._cluster.metadata(names)
        for topic in answer.topics:
            is_passing = (
                row_of(topic.error_code).is_retriable
                and topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            if is_passing:
                raise_for(topic.error_code, f"topic {topic.name!r} has no leader")
        found = _found(topics, answer)
        if self._drops_replays:
            await self._refuse_compacted({at.topic for at in found.partitions} - self._keep_all)
        return found

    async def _refuse_compacted(self, topics: set[str]) -> None:
        """Raise ConfigError if a topic is compacted. Compaction may have deleted the first of two
        copies of a record, so that repeated writes could not be detected."""
        if not topics:
            return
        resources = [
            DescribeConfigsResource(
                resource_type=ConfigKind.TOPIC, resource_name=name, configuration_keys=[POLICY]
            )
            for name in sorted(topics)
        ]
        answer = await self._cluster.request(
            DescribeConfigsRequest(resources=resources), DescribeConfigsResponse
        )
        for result in answer.results:
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue  # The topic was deleted during the call.
            raise_for(result.error_code, result.error_message)
            if any("compact" in (one.value or "") for one in result.configs if one.name == POLICY):
                raise ConfigError(
                    "dropReplays",
                    f"topic {result.resource_name!r} is compacted: of a record that was written "
                    "twice only the later copy may be left; read it without, its keys' last "
                    "values are right",
                )
            self._keep_all.add(result.resource_name)

    async def _find_offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = await find_offsets(
            self._cluster,
            asked,
            isolation_level=self._isolation_level,
            timeout_s=min(self._timeout_s, LOOK_AGAIN_S),
        )
        return {at: int(one.offset) for at, one in found.items()}

    def _call(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Send an idempotent request to the cluster by calling `attempt`, and repeat it after
        temporary failures. Returns the result of `attempt`."""

        async def body() -> T:
            return await retry_until_timeout(
                attempt, timeout_s=self._timeout_s, retry_wait_s=RETRY_WAIT_S
            )

        found = self._loop.call(body)
        self._has_answered = True
        return found


def _found(topics: Topics, answer: MetadataResponse) -> FoundTopics:
    there: set[TopicPartition] = set()
    ids: dict[str, str] = {}
    missing: list[str] = []
    for topic in answer.topics:
        name = topic.name or ""
        if isinstance(topics, SubscribePattern) and (
            topic.is_internal or not re.fullmatch(topics.pattern, name)
        ):
            continue
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            missing.append(f"topic {name!r}")
            continue
        raise_for(topic.error_code, f"topic {name!r}: {row_of(topic.error_code).meaning}")
        there |= {TopicPartition(name, one.partition_index) for one in topic.partitions}
        if topic.topic_id is not None and topic.topic_id != ZERO_UUID:
            ids[name] = uuid_text(topic.topic_id)
    if isinstance(topics, Assign):
        unknown = {at for at in topics.partitions - there if f"topic {at.topic!r}" not in missing}
        missing += [f"partition {at}" for at in sorted(unknown)]
        there &= topics.partitions
    return FoundTopics(frozenset(there), ids, tuple(sorted(missing)))
