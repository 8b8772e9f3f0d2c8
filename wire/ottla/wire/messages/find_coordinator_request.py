"""FindCoordinatorRequest.

Generated from schemas/find_coordinator.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message


class FindCoordinatorRequest(Message):
    __slots__ = (
        "key",
        "key_type",
        "coordinator_keys",
    )
    API_KEY = 10
    VERSIONS = range(7)
    FLEXIBLE_FROM = 3
    SCHEMA = "find_coordinator"

    def __init__(
        self,
        *,
        key: str = "",
        key_type: int = 0,
        coordinator_keys: list[str] = EMPTY,
    ) -> None:
        self.key = key
        self.key_type = key_type
        self.coordinator_keys = [] if coordinator_keys is EMPTY else coordinator_keys
