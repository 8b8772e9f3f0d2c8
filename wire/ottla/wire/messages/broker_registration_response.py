"""BrokerRegistrationResponse.

Generated from schemas/broker_registration.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class BrokerRegistrationResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "broker_epoch",
    )
    API_KEY = 62
    VERSIONS = range(5)
    FLEXIBLE_FROM = 0
    SCHEMA = "broker_registration"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        broker_epoch: int = -1,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.broker_epoch = broker_epoch
