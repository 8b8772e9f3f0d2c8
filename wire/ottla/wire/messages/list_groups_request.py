"""ListGroupsRequest.

Generated from schemas/list_groups.schema; never edited.
"""

from ottla.wire.codec_types import EMPTY, Message


class ListGroupsRequest(Message):
    __slots__ = (
        "states_filter",
        "types_filter",
    )
    API_KEY = 16
    VERSIONS = range(6)
    FLEXIBLE_FROM = 3
    SCHEMA = "list_groups"

    def __init__(
        self,
        *,
        states_filter: list[str] = EMPTY,
        types_filter: list[str] = EMPTY,
    ) -> None:
        self.states_filter = [] if states_filter is EMPTY else states_filter
        self.types_filter = [] if types_filter is EMPTY else types_filter
