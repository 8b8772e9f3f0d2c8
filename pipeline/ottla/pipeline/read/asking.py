"""What the driver asks the cluster: topics, partitions, offsets; and what it commits.

Blocking calls, as Spark makes them.  Whoever cannot be reached is asked again: for
`default.api.timeout.ms` once it has answered, for less before that, since a wrong address is the
likelier reason then.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar

from ottla.client.fetch.offset_lookup import find_offsets
from ottla.client.groups.coordinator import Coordinator, open_coordinator
from ottla.client.groups.group_offsets import Committed, commit_offsets
from ottla.client.network.cluster import Cluster, open_cluster, raise_for
from ottla.client.network.patience import sit_out
from ottla.model.errors import ConfigError, ErrorCode, row_of
from ottla.model.ids import ZERO_UUID, Offset, TopicPartition, uuid_text
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.model.settings.resources import ConfigKind
from ottla.pipeline.loop_thread import start_loop_thread
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
"""Longer, and a mistyped address costs patience; shorter, and a broker that starts is missed."""
COMMIT_TIMEOUT_S = 5.0
RETRY_WAIT_S = 0.1
POLICY = "cleanup.policy"
LOOK_AGAIN_S = 3.0
"""Who does not tell offsets for so long may have lost the topic: it is looked for again."""


class FoundTopics(NamedTuple):
    """The partitions that options name and the cluster has, and what it has not."""

    partitions: frozenset[TopicPartition]
    topic_ids: Mapping[str, str]
    missing: tuple[str, ...]
    """What was named and is not there: topics, or partitions."""


class Asking:
    """A connection to the cluster from a thread that blocks; owns a loop in another thread."""

    def __init__(
        self, options: ReadOptions, *, first_answer_timeout_s: float = FIRST_ANSWER_TIMEOUT_S
    ) -> None:
        self._config = options.consumer_config()
        self._first_answer_timeout_s = first_answer_timeout_s
        self._isolation_level = options.isolation_level
        self._drops_replays = options.drop_replays
        self._keep_all: set[str] = set()
        """Topics that were seen not to be compacted."""
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
        """Close every connection and end the thread."""
        self._loop.close()

    def find_topics(self, topics: Topics) -> FoundTopics:
        """Return which partitions there are now of what is to be read."""
        return self._call(lambda: self._find_topics(topics))

    def offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset at or after a time in ms; -2 asks for the first, -1 the end.

        -1 where a partition has no record so late.
        """
        return self._call(lambda: self._find_offsets(asked)) if asked else {}

    def ends(self, topics: Topics) -> StreamPosition:
        """Return the ends of what there is: high watermarks, or last stable offsets.

        A topic that goes meanwhile is not there.
        """

        async def attempt() -> StreamPosition:
            found = await self._find_topics(topics)
            ends = await self._find_offsets(dict.fromkeys(found.partitions, LATEST))
            return StreamPosition(ends, dict(found.topic_ids))

        return self._call(attempt)

    def commit(self, group: str, position: StreamPosition, note: str) -> None:
        """Commit a position to a group without members, so that its lag is seen."""
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
        """Raise ConfigError for a topic of which the cleaner may have taken a first copy."""
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
        for told in answer.results:
            if told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue  # it went meanwhile
            raise_for(told.error_code, told.error_message)
            if any("compact" in (one.value or "") for one in told.configs if one.name == POLICY):
                raise ConfigError(
                    "dropReplays",
                    f"topic {told.resource_name!r} is compacted: of a record that was written "
                    "twice only the later copy may be left; read it without, its keys' last "
                    "values are right",
                )
            self._keep_all.add(told.resource_name)

    async def _find_offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = await find_offsets(
            self._cluster,
            asked,
            isolation_level=self._isolation_level,
            timeout_s=min(self._timeout_s, LOOK_AGAIN_S),
        )
        return {at: int(one.offset) for at, one in found.items()}

    def _call(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat what may be repeated without harm, while the trouble is one that passes."""

        async def body() -> T:
            return await sit_out(attempt, timeout_s=self._timeout_s, retry_wait_s=RETRY_WAIT_S)

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
