"""DeleteGroupsResponse.

Generated from schemas/delete_groups.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class DeletableGroupResult(Struct):
    __slots__ = (
        "group_id",
        "error_code",
        "error_message",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.error_code = error_code
        self.error_message = error_message


class DeleteGroupsResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "results",
    )
    API_KEY = 42
    VERSIONS = range(4)
    FLEXIBLE_FROM = 2
    SCHEMA = "delete_groups"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        results: list[DeletableGroupResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results = [] if results is EMPTY else results
