"""Names of partition directories, and the meaning of a name found on disk. Pure.

A name is `<topic>-<partition>`. The suffix `.<32 hex digits>-delete` marks a directory that will be
removed. The suffix `-stray` marks a directory of a partition that the cluster no longer places on
this broker. The suffix `-future` marks a directory that receives a copy from another log directory.
"""

from enum import Enum, auto
from typing import NamedTuple
from uuid import UUID

from ottla.model.ids import METADATA_TOPIC, TopicPartition

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
FUTURE_SUFFIX = "-future"
METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"
REMOTE_INDEX_DIRECTORY = "remote-log-index-cache"
FILE_NAME_LENGTH_MAX = 255


class DirectoryKind(Enum):
    """Kind of a directory inside a log directory, which decides how the broker treats it at
    startup."""

    LOG = auto()
    DELETE = auto()
    STRAY = auto()
    FUTURE = auto()
    OTHER = auto()
    """Directory that contains no user's partition: the metadata log, a cache, or files of another
    program. The broker does not change the directory."""


class DirectoryName(NamedTuple):
    """A parsed directory name: the kind of directory, and the partition if the kind is LOG or
    FUTURE."""

    kind: DirectoryKind
    partition: TopicPartition | None


def directory_name(partition: TopicPartition) -> str:
    """Return the name of a partition's directory, `<topic>-<partition>`."""
    return f"{partition.topic}-{partition.partition}"


def deleted_name(partition: TopicPartition, unique: UUID) -> str:
    """Return the name that the directory of a deleted partition has until it is removed. With this
    name, the directory does not prevent the partition from being created again."""
    return _suffixed_name(partition, unique, DELETE_SUFFIX)


def stray_name(partition: TopicPartition, unique: UUID) -> str:
    """Return the name of the directory of a stray partition, which the cluster no longer places on
    this broker. The operator may remove the directory."""
    return _suffixed_name(partition, unique, STRAY_SUFFIX)


def future_name(partition: TopicPartition, unique: UUID) -> str:
    """Return the name of a directory that receives a copy of a partition's log from another log
    directory."""
    return _suffixed_name(partition, unique, FUTURE_SUFFIX)


def _suffixed_name(partition: TopicPartition, unique: UUID, suffix: str) -> str:
    ending = f"-{partition.partition}.{unique.hex}{suffix}"
    return partition.topic[: FILE_NAME_LENGTH_MAX - len(ending)] + ending


def parse_directory_name(name: str) -> DirectoryName:
    """Return the kind of directory and the partition that a directory's name denotes."""
    if name in (METADATA_DIRECTORY, REMOTE_INDEX_DIRECTORY):
        return DirectoryName(DirectoryKind.OTHER, None)
    for suffix, kind in (
        (DELETE_SUFFIX, DirectoryKind.DELETE),
        (STRAY_SUFFIX, DirectoryKind.STRAY),
        (FUTURE_SUFFIX, DirectoryKind.FUTURE),
    ):
        if name.endswith(suffix) and "." in name:
            is_future = kind is DirectoryKind.FUTURE
            return DirectoryName(
                kind, _partition_of(name.rpartition(".")[0]) if is_future else None
            )
    partition = _partition_of(name)
    return DirectoryName(DirectoryKind.OTHER if partition is None else DirectoryKind.LOG, partition)


def _partition_of(name: str) -> TopicPartition | None:
    topic, separator, index = name.rpartition("-")
    is_number = index.isascii() and index.isdigit()
    if not separator or not topic or not is_number or str(int(index)) != index:
        return None
    return TopicPartition(topic, int(index))
