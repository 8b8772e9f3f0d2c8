"""DescribeNodeResponse.

Generated from schemas/describe_node.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class RecoveringLogDir(Struct):
    __slots__ = (
        "log_dir",
        "remaining_logs",
        "remaining_segments",
        "bytes_total",
        "bytes_done",
    )

    def __init__(
        self,
        *,
        log_dir: str = "",
        remaining_logs: int = 0,
        remaining_segments: int = 0,
        bytes_total: int = 0,
        bytes_done: int = 0,
    ) -> None:
        self.log_dir = log_dir
        self.remaining_logs = remaining_logs
        self.remaining_segments = remaining_segments
        self.bytes_total = bytes_total
        self.bytes_done = bytes_done


class NodeMetric(Struct):
    __slots__ = (
        "name",
        "value",
    )

    def __init__(
        self,
        *,
        name: str = "",
        value: float = 0.0,
    ) -> None:
        self.name = name
        self.value = value


class NodeDirectory(Struct):
    __slots__ = (
        "path",
        "state",
        "total_bytes",
        "usable_bytes",
    )

    def __init__(
        self,
        *,
        path: str = "",
        state: str = "",
        total_bytes: int = 0,
        usable_bytes: int = 0,
    ) -> None:
        self.path = path
        self.state = state
        self.total_bytes = total_bytes
        self.usable_bytes = usable_bytes


class NodeReplica(Struct):
    __slots__ = (
        "topic",
        "partition",
        "last_epoch",
        "end_offset",
        "high_watermark",
        "promised_end_offset",
        "loss",
    )

    def __init__(
        self,
        *,
        topic: str = "",
        partition: int = 0,
        last_epoch: int = 0,
        end_offset: int = 0,
        high_watermark: int = 0,
        promised_end_offset: int = -1,
        loss: str | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.last_epoch = last_epoch
        self.end_offset = end_offset
        self.high_watermark = high_watermark
        self.promised_end_offset = promised_end_offset
        self.loss = loss


class NodeRegistration(Struct):
    __slots__ = (
        "broker_id",
        "host",
        "is_cordoned",
    )

    def __init__(
        self,
        *,
        broker_id: int = 0,
        host: str | None = None,
        is_cordoned: bool = False,
    ) -> None:
        self.broker_id = broker_id
        self.host = host
        self.is_cordoned = is_cordoned


class NodeController(Struct):
    __slots__ = (
        "controller_id",
        "software_version",
    )

    def __init__(
        self,
        *,
        controller_id: int = 0,
        software_version: str = "",
    ) -> None:
        self.controller_id = controller_id
        self.software_version = software_version


class NodeTopicTraffic(Struct):
    __slots__ = (
        "topic",
        "bytes_in",
        "bytes_out",
        "messages_in",
        "produce_requests",
        "fetch_requests",
    )

    def __init__(
        self,
        *,
        topic: str = "",
        bytes_in: int = 0,
        bytes_out: int = 0,
        messages_in: int = 0,
        produce_requests: int = 0,
        fetch_requests: int = 0,
    ) -> None:
        self.topic = topic
        self.bytes_in = bytes_in
        self.bytes_out = bytes_out
        self.messages_in = messages_in
        self.produce_requests = produce_requests
        self.fetch_requests = fetch_requests


class NodeClientTraffic(Struct):
    __slots__ = (
        "user",
        "client_id",
        "requests",
        "bytes_in",
        "bytes_out",
        "used_ns",
    )

    def __init__(
        self,
        *,
        user: str = "",
        client_id: str = "",
        requests: int = 0,
        bytes_in: int = 0,
        bytes_out: int = 0,
        used_ns: int = 0,
    ) -> None:
        self.user = user
        self.client_id = client_id
        self.requests = requests
        self.bytes_in = bytes_in
        self.bytes_out = bytes_out
        self.used_ns = used_ns


class DescribeNodeResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "node_id",
        "state",
        "recovery",
        "metrics",
        "problems",
        "warnings",
        "directories",
        "replicas",
        "version",
        "registrations",
        "controllers",
        "traffic",
        "clients",
    )
    API_KEY = 20000
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_node"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        node_id: int = -1,
        state: str = "",
        recovery: list[RecoveringLogDir] = EMPTY,
        metrics: list[NodeMetric] = EMPTY,
        problems: list[str] = EMPTY,
        warnings: list[str] = EMPTY,
        directories: list[NodeDirectory] = EMPTY,
        replicas: list[NodeReplica] = EMPTY,
        version: str = "",
        registrations: list[NodeRegistration] = EMPTY,
        controllers: list[NodeController] = EMPTY,
        traffic: list[NodeTopicTraffic] = EMPTY,
        clients: list[NodeClientTraffic] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.node_id = node_id
        self.state = state
        self.recovery = [] if recovery is EMPTY else recovery
        self.metrics = [] if metrics is EMPTY else metrics
        self.problems = [] if problems is EMPTY else problems
        self.warnings = [] if warnings is EMPTY else warnings
        self.directories = [] if directories is EMPTY else directories
        self.replicas = [] if replicas is EMPTY else replicas
        self.version = version
        self.registrations = [] if registrations is EMPTY else registrations
        self.controllers = [] if controllers is EMPTY else controllers
        self.traffic = [] if traffic is EMPTY else traffic
        self.clients = [] if clients is EMPTY else clients
