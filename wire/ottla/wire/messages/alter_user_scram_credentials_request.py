"""AlterUserScramCredentialsRequest.

Generated from schemas/alter_user_scram_credentials.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class ScramCredentialDeletion(Struct):
    __slots__ = (
        "name",
        "mechanism",
    )

    def __init__(
        self,
        *,
        name: str = "",
        mechanism: int = 0,
    ) -> None:
        self.name = name
        self.mechanism = mechanism


class ScramCredentialUpsertion(Struct):
    __slots__ = (
        "name",
        "mechanism",
        "iterations",
        "salt",
        "salted_password",
    )

    def __init__(
        self,
        *,
        name: str = "",
        mechanism: int = 0,
        iterations: int = 0,
        salt: bytes = b"",
        salted_password: bytes = b"",
    ) -> None:
        self.name = name
        self.mechanism = mechanism
        self.iterations = iterations
        self.salt = salt
        self.salted_password = salted_password


class AlterUserScramCredentialsRequest(Message):
    __slots__ = (
        "deletions",
        "upsertions",
    )
    API_KEY = 51
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "alter_user_scram_credentials"

    def __init__(
        self,
        *,
        deletions: list[ScramCredentialDeletion] = EMPTY,
        upsertions: list[ScramCredentialUpsertion] = EMPTY,
    ) -> None:
        self.deletions = [] if deletions is EMPTY else deletions
        self.upsertions = [] if upsertions is EMPTY else upsertions
