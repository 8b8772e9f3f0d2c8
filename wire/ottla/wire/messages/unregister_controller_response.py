"""UnregisterControllerResponse.

Generated from schemas/unregister_controller.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class UnregisterControllerResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
    )
    API_KEY = 94
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "unregister_controller"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
