"""Encoder and decoder of `partition.metadata`, the file that contains the topic id of a partition's
directory. Pure.

The file is written before the first record, so that the directory of a deleted topic is never
mistaken for that of a new topic with the same name. It is durable before the first flush of the log
completes. An earlier power failure leaves a directory without the file, or with an incomplete file.
No record in such a directory has been reported as flushed, and the next start renames the
directory.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID

from ottla.model.errors import CorruptDataError
from ottla.model.ids import ZERO_UUID

VERSION = 0
ID_AT = len("version: 0\ntopic_id: ")
"""Position in bytes of the topic id in a `partition.metadata` file."""


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """Return the bytes of a `partition.metadata` file: the format version and the topic id. The
    topic id is written as Kafka writes it (base64url, no padding)."""
    text = urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
    return f"version: {VERSION}\ntopic_id: {text}".encode()


def is_unfinished(data: bytes) -> bool:
    """Return whether a power failure left a `partition.metadata` file incomplete: its end is
    missing, or some of its bytes are zero."""
    whole = encode_partition_metadata(ZERO_UUID)
    if len(data) > len(whole) or (len(data) == len(whole) and 0 not in data):
        return False
    return all(byte in (0, right) for byte, right in zip(data, whole[:ID_AT], strict=False))


def decode_partition_metadata(data: bytes) -> UUID:
    """Return the topic id in a `partition.metadata` file. Raises CorruptDataError if the file is
    not in Kafka's format."""
    fields: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields[name.strip()] = value.strip()
    if fields.get("version") != str(VERSION):
        raise CorruptDataError("partition.metadata: its version is not 0")
    text = fields.get("topic_id", "")
    try:
        return UUID(bytes=urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError:
        raise CorruptDataError(f"partition.metadata: topic id {text!r}") from None
