"""DeleteGroupsRequest.

Generated from schemas/delete_groups.schema; never edited.
"""

from ottla.wire.codec_types import EMPTY, Message


class DeleteGroupsRequest(Message):
    __slots__ = ("groups_names",)
    API_KEY = 42
    VERSIONS = range(4)
    FLEXIBLE_FROM = 2
    SCHEMA = "delete_groups"

    def __init__(
        self,
        *,
        groups_names: list[str] = EMPTY,
    ) -> None:
        self.groups_names = [] if groups_names is EMPTY else groups_names
