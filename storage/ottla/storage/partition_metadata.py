"""The `partition.metadata` file: which topic's id a directory belongs to.

It is written before the first record, so that a directory whose topic was deleted and created
again under the same name is never taken for the new topic's, and durable before the first flush of
the log is over.  A power loss before that leaves a directory without the file, or with a part of
it: nothing in there was called flushed, and it is set aside at the start.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID

from ottla.model.errors import CorruptDataError
from ottla.model.ids import ZERO_UUID

VERSION = 0
ID_AT = len("version: 0\ntopic_id: ")
"""Where the id begins."""


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """Return the file's text: version and the id as Kafka writes ids (base64url, no padding)."""
    text = urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
    return f"version: {VERSION}\ntopic_id: {text}".encode()


def is_unfinished(data: bytes) -> bool:
    """Return whether a power loss left only a part of the file: its end or any byte is missing."""
    whole = encode_partition_metadata(ZERO_UUID)
    if len(data) > len(whole) or (len(data) == len(whole) and 0 not in data):
        return False
    return all(byte in (0, right) for byte, right in zip(data, whole[:ID_AT], strict=False))


def decode_partition_metadata(data: bytes) -> UUID:
    """Return the topic id; CorruptDataError when the text is not Kafka's."""
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
