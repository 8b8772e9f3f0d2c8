"""PushTelemetryRequest.

Generated from schemas/push_telemetry.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import ZERO_UUID, Message


class PushTelemetryRequest(Message):
    __slots__ = (
        "client_instance_id",
        "subscription_id",
        "terminating",
        "compression_type",
        "metrics",
    )
    API_KEY = 72
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "push_telemetry"

    def __init__(
        self,
        *,
        client_instance_id: UUID = ZERO_UUID,
        subscription_id: int = 0,
        terminating: bool = False,
        compression_type: int = 0,
        metrics: bytes = b"",
    ) -> None:
        self.client_instance_id = client_instance_id
        self.subscription_id = subscription_id
        self.terminating = terminating
        self.compression_type = compression_type
        self.metrics = metrics
