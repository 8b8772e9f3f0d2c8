"""ListGroupsRequest.

Generated from schemas/list_groups.schema; never edited.
"""

from ottla.wire.codec_types import EMPTY, Message, fresh


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
        self.states_filter = fresh(states_filter)
        self.types_filter = fresh(types_filter)
