"""`meta.properties`: which cluster, which node and which directory these files belong to.

Kafka's file, version 1: java properties with `version`, `cluster.id`, `node.id` and
`directory.id`.  It is written once, when a directory is formatted, and checked at every start.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from uuid import UUID

from ottla.model.errors import CorruptDataError
from ottla.model.ids import NodeId

META_PROPERTIES_FILE = "meta.properties"
VERSION = 1
UUID_TEXT_LENGTH = 22
"""A uuid in base64 without its padding, as Kafka prints it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The identity of one directory; `directory_id` is absent in files of old versions."""

    cluster_id: str
    node_id: NodeId
    directory_id: UUID | None = None


def format_meta_properties(properties: MetaProperties) -> bytes:
    """Return the file's bytes."""
    lines = ["#", f"cluster.id={properties.cluster_id}"]
    if properties.directory_id is not None:
        lines.append(f"directory.id={uuid_to_text(properties.directory_id)}")
    lines += [f"node.id={properties.node_id}", f"version={VERSION}", ""]
    return "\n".join(lines).encode()


def parse_meta_properties(data: bytes) -> MetaProperties:
    """Read the file's bytes; CorruptDataError names the line that is missing or wrong."""
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise CorruptDataError(f"{META_PROPERTIES_FILE}: it is not UTF-8") from None
    values: dict[str, str] = {}
    for line in lines:
        key, separator, value = line.strip().partition("=")
        if separator and not key.startswith(("#", "!")):
            values[key.strip()] = value.strip().replace("\\:", ":").replace("\\=", "=")
    if values.get("version") != str(VERSION):
        raise CorruptDataError(
            f"{META_PROPERTIES_FILE}: version is {values.get('version')!r}, not {VERSION}"
        )
    cluster_id = values.get("cluster.id", "")
    if not cluster_id:
        raise CorruptDataError(f"{META_PROPERTIES_FILE}: cluster.id is missing")
    node_id = values.get("node.id", "")
    if not (node_id.isascii() and node_id.isdigit()):
        raise CorruptDataError(f"{META_PROPERTIES_FILE}: node.id is {node_id!r}")
    directory_id = values.get("directory.id")
    return MetaProperties(
        cluster_id=cluster_id,
        node_id=NodeId(int(node_id)),
        directory_id=None if directory_id is None else uuid_from_text(directory_id),
    )


def uuid_to_text(uuid: UUID) -> str:
    """Return a uuid as Kafka prints it: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(uuid.bytes).decode().rstrip("=")


def uuid_from_text(text: str) -> UUID:
    """Read a uuid as Kafka prints it; CorruptDataError when it is none."""
    try:
        raw = urlsafe_b64decode(text + "==")
    except ValueError:
        raw = b""
    if len(text) != UUID_TEXT_LENGTH or len(raw) != 16:
        raise CorruptDataError(f"{text!r} is not a uuid of 22 base64 characters")
    return UUID(bytes=raw)
