"""DescribeClientInstancesResponse.

Generated from schemas/describe_client_instances.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct


class ClientInstance(Struct):
    __slots__ = (
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
        "subscription_id",
        "push_interval_ms",
        "metrics",
        "last_get_ms_ago",
        "last_push_ms_ago",
        "push_count",
        "push_bytes",
        "last_error_code",
        "terminating",
    )

    def __init__(
        self,
        *,
        client_instance_id: UUID = ZERO_UUID,
        client_id: str | None = "",
        client_software_name: str = "",
        client_software_version: str = "",
        client_source_address: str = "",
        client_source_port: int = 0,
        subscription_id: int = 0,
        push_interval_ms: int = 0,
        metrics: list[str] = EMPTY,
        last_get_ms_ago: int = -1,
        last_push_ms_ago: int = -1,
        push_count: int = 0,
        push_bytes: int = 0,
        last_error_code: int = 0,
        terminating: bool = False,
    ) -> None:
        self.client_instance_id = client_instance_id
        self.client_id = client_id
        self.client_software_name = client_software_name
        self.client_software_version = client_software_version
        self.client_source_address = client_source_address
        self.client_source_port = client_source_port
        self.subscription_id = subscription_id
        self.push_interval_ms = push_interval_ms
        self.metrics = [] if metrics is EMPTY else metrics
        self.last_get_ms_ago = last_get_ms_ago
        self.last_push_ms_ago = last_push_ms_ago
        self.push_count = push_count
        self.push_bytes = push_bytes
        self.last_error_code = last_error_code
        self.terminating = terminating


class DescribeClientInstancesResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "node_id",
        "more",
        "instances",
    )
    API_KEY = 20002
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_client_instances"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        node_id: int = -1,
        more: bool = False,
        instances: list[ClientInstance] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.node_id = node_id
        self.more = more
        self.instances = [] if instances is EMPTY else instances
