"""DescribeUserScramCredentialsRequest.

Generated from schemas/describe_user_scram_credentials.schema; never edited.
"""

from ottla.wire.codec_types import EMPTY, Message, Struct


class UserName(Struct):
    __slots__ = ("name",)

    def __init__(
        self,
        *,
        name: str = "",
    ) -> None:
        self.name = name


class DescribeUserScramCredentialsRequest(Message):
    __slots__ = ("users",)
    API_KEY = 50
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_user_scram_credentials"

    def __init__(
        self,
        *,
        users: list[UserName] | None = EMPTY,
    ) -> None:
        self.users = [] if users is EMPTY else users
