"""GetTelemetrySubscriptionsRequest.

Generated from schemas/get_telemetry_subscriptions.schema; never edited.
"""

from uuid import UUID

from ottla.wire.codec_types import ZERO_UUID, Message


class GetTelemetrySubscriptionsRequest(Message):
    __slots__ = ("client_instance_id",)
    API_KEY = 71
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "get_telemetry_subscriptions"

    def __init__(
        self,
        *,
        client_instance_id: UUID = ZERO_UUID,
    ) -> None:
        self.client_instance_id = client_instance_id
