"""AlterReplicaLogDirsRequest.

Generated from schemas/alter_replica_log_dirs.schema; never edited.
"""

from ottla.wire.codec_types import EMPTY, Message, Struct


class AlterReplicaLogDirTopic(Struct):
    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class AlterReplicaLogDir(Struct):
    __slots__ = (
        "path",
        "topics",
    )

    def __init__(
        self,
        *,
        path: str = "",
        topics: list[AlterReplicaLogDirTopic] = EMPTY,
    ) -> None:
        self.path = path
        self.topics = [] if topics is EMPTY else topics


class AlterReplicaLogDirsRequest(Message):
    __slots__ = ("dirs",)
    API_KEY = 34
    VERSIONS = range(1, 3)
    FLEXIBLE_FROM = 2
    SCHEMA = "alter_replica_log_dirs"

    def __init__(
        self,
        *,
        dirs: list[AlterReplicaLogDir] = EMPTY,
    ) -> None:
        self.dirs = [] if dirs is EMPTY else dirs
