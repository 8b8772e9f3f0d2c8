"""The `partition.metadata` file: which topic's id a directory belongs to.

It is durable before the first record, so that a directory whose topic was deleted and created
again under the same name is never taken for the new topic's.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID

from ottla.model.errors import CorruptDataError

VERSION = 0


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """Return the file's text: version and the id as Kafka writes ids (base64url, no padding)."""
    text = urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
    return f"version: {VERSION}\ntopic_id: {text}".encode()


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
