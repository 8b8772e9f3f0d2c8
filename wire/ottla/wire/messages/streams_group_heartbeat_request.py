"""StreamsGroupHeartbeatRequest.

Generated from schemas/streams_group_heartbeat.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct, fresh


class KeyValue(Struct):
    __slots__ = (
        "key",
        "value",
    )

    def __init__(
        self,
        *,
        key: str = "",
        value: str = "",
    ) -> None:
        self.key = key
        self.value = value


class TopicInfo(Struct):
    __slots__ = (
        "name",
        "partitions",
        "replication_factor",
        "topic_configs",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: int = 0,
        replication_factor: int = 0,
        topic_configs: list[KeyValue] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = partitions
        self.replication_factor = replication_factor
        self.topic_configs = fresh(topic_configs)


class CopartitionGroup(Struct):
    __slots__ = (
        "source_topics",
        "source_topic_regex",
        "repartition_source_topics",
    )

    def __init__(
        self,
        *,
        source_topics: list[int] = EMPTY,
        source_topic_regex: list[int] = EMPTY,
        repartition_source_topics: list[int] = EMPTY,
    ) -> None:
        self.source_topics = fresh(source_topics)
        self.source_topic_regex = fresh(source_topic_regex)
        self.repartition_source_topics = fresh(repartition_source_topics)


class Subtopology(Struct):
    __slots__ = (
        "subtopology_id",
        "source_topics",
        "source_topic_regex",
        "state_changelog_topics",
        "repartition_sink_topics",
        "repartition_source_topics",
        "copartition_groups",
    )

    def __init__(
        self,
        *,
        subtopology_id: str = "",
        source_topics: list[str] = EMPTY,
        source_topic_regex: list[str] = EMPTY,
        state_changelog_topics: list[TopicInfo] = EMPTY,
        repartition_sink_topics: list[str] = EMPTY,
        repartition_source_topics: list[TopicInfo] = EMPTY,
        copartition_groups: list[CopartitionGroup] = EMPTY,
    ) -> None:
        self.subtopology_id = subtopology_id
        self.source_topics = fresh(source_topics)
        self.source_topic_regex = fresh(source_topic_regex)
        self.state_changelog_topics = fresh(state_changelog_topics)
        self.repartition_sink_topics = fresh(repartition_sink_topics)
        self.repartition_source_topics = fresh(repartition_source_topics)
        self.copartition_groups = fresh(copartition_groups)


class Topology(Struct):
    __slots__ = (
        "epoch",
        "subtopologies",
    )

    def __init__(
        self,
        *,
        epoch: int = 0,
        subtopologies: list[Subtopology] = EMPTY,
    ) -> None:
        self.epoch = epoch
        self.subtopologies = fresh(subtopologies)


class TaskIds(Struct):
    __slots__ = (
        "subtopology_id",
        "partitions",
    )

    def __init__(
        self,
        *,
        subtopology_id: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.subtopology_id = subtopology_id
        self.partitions = fresh(partitions)


class Endpoint(Struct):
    __slots__ = (
        "host",
        "port",
    )

    def __init__(
        self,
        *,
        host: str = "",
        port: int = 0,
    ) -> None:
        self.host = host
        self.port = port


class TaskOffset(Struct):
    __slots__ = (
        "subtopology_id",
        "partition",
        "offset",
    )

    def __init__(
        self,
        *,
        subtopology_id: str = "",
        partition: int = 0,
        offset: int = 0,
    ) -> None:
        self.subtopology_id = subtopology_id
        self.partition = partition
        self.offset = offset


class StreamsGroupHeartbeatRequest(Message):
    __slots__ = (
        "group_id",
        "member_id",
        "member_epoch",
        "endpoint_information_epoch",
        "instance_id",
        "rack_id",
        "rebalance_timeout_ms",
        "topology",
        "active_tasks",
        "standby_tasks",
        "warmup_tasks",
        "process_id",
        "user_endpoint",
        "client_tags",
        "task_offsets",
        "task_end_offsets",
        "shutdown_application",
    )
    API_KEY = 88
    VERSIONS = range(2)
    FLEXIBLE_FROM = 0
    SCHEMA = "streams_group_heartbeat"

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        member_epoch: int = 0,
        endpoint_information_epoch: int = 0,
        instance_id: str | None = None,
        rack_id: str | None = None,
        rebalance_timeout_ms: int = -1,
        topology: Topology | None = None,
        active_tasks: list[TaskIds] | None = None,
        standby_tasks: list[TaskIds] | None = None,
        warmup_tasks: list[TaskIds] | None = None,
        process_id: str | None = None,
        user_endpoint: Endpoint | None = None,
        client_tags: list[KeyValue] | None = None,
        task_offsets: list[TaskOffset] | None = None,
        task_end_offsets: list[TaskOffset] | None = None,
        shutdown_application: bool = False,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.endpoint_information_epoch = endpoint_information_epoch
        self.instance_id = instance_id
        self.rack_id = rack_id
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.topology = topology
        self.active_tasks = active_tasks
        self.standby_tasks = standby_tasks
        self.warmup_tasks = warmup_tasks
        self.process_id = process_id
        self.user_endpoint = user_endpoint
        self.client_tags = client_tags
        self.task_offsets = task_offsets
        self.task_end_offsets = task_end_offsets
        self.shutdown_application = shutdown_application
