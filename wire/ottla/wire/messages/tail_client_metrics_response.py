"""TailClientMetricsResponse.

Generated from schemas/tail_client_metrics.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct


class ClientPush(Struct):
    __slots__ = (
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "received_ms",
        "metrics",
    )

    def __init__(
        self,
        *,
        client_instance_id: UUID = ZERO_UUID,
        client_id: str | None = "",
        client_software_name: str = "",
        client_software_version: str = "",
        client_source_address: str = "",
        received_ms: int = 0,
        metrics: bytes = b"",
    ) -> None:
        self.client_instance_id = client_instance_id
        self.client_id = client_id
        self.client_software_name = client_software_name
        self.client_software_version = client_software_version
        self.client_source_address = client_source_address
        self.received_ms = received_ms
        self.metrics = metrics


class TailClientMetricsResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "node_id",
        "cursor",
        "missed",
        "pushes",
    )
    API_KEY = 20003
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "tail_client_metrics"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        node_id: int = -1,
        cursor: int = -1,
        missed: int = 0,
        pushes: list[ClientPush] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.node_id = node_id
        self.cursor = cursor
        self.missed = missed
        self.pushes = [] if pushes is EMPTY else pushes
