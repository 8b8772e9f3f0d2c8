"""CreatePartitionsResponse.

Generated from schemas/create_partitions.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class CreatePartitionsTopicResult(Struct):
    __slots__ = (
        "name",
        "error_code",
        "error_message",
    )

    def __init__(
        self,
        *,
        name: str = "",
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.name = name
        self.error_code = error_code
        self.error_message = error_message


class CreatePartitionsResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "results",
    )
    API_KEY = 37
    VERSIONS = range(4)
    FLEXIBLE_FROM = 2
    SCHEMA = "create_partitions"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[CreatePartitionsTopicResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results = [] if results is EMPTY else results
