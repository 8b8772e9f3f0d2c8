"""Encoder, decoder and check of `meta.properties`, the file that identifies a log directory and its
cluster and node. Pure.

The format is Kafka's, version 1: java properties with `version`, `cluster.id`, `node.id` and
`directory.id`. The file is written once, when a directory is formatted, and checked at every start.
Ottla adds its own properties, which Kafka ignores.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from uuid import UUID

from ottla.model.errors import ConfigError, CorruptDataError, NewerReleaseError
from ottla.model.ids import NodeId
from ottla.model.values import frozen
from ottla.model.version import VERSION as RELEASE

META_PROPERTIES_FILE = "meta.properties"
VERSION = 1
OTTLA_FORMAT = 1
"""Format number of the log directories that this release formats. A release raises it if earlier
releases cannot start with such a directory. Directories of release 0.2.0 have format 0."""
NUMBER_DIGITS_MAX = 10
"""Maximum number of digits of a number in `meta.properties`, enough for an int32. Longer numbers
are refused, because Python refuses to parse numbers of thousands of digits."""

_VOTER_FILES = "voter.checkpoint"
"""Name of the property in `meta.properties` which records that the voter files exist."""

_OTTLA_FORMAT = "ottla.format"
"""Name of the property in `meta.properties` with the directory's format number."""

UUID_TEXT_LENGTH = 22
"""Number of characters of a UUID in base64 without padding, the form that Kafka prints."""


@frozen(kw_only=True)
class MetaProperties:
    """The identity of one log directory, as stored in `meta.properties`. In files of old versions,
    `directory_id` is missing."""

    cluster_id: str
    node_id: NodeId
    directory_id: UUID | None = None
    has_voter_files: bool = False
    """True if the directory was formatted with the files `quorum-state` and voter checkpoint."""


def format_meta_properties(properties: MetaProperties) -> bytes:
    """Return the bytes of a `meta.properties` file with the identity `properties`."""
    lines = ["#", f"cluster.id={properties.cluster_id}"]
    if properties.directory_id is not None:
        lines.append(f"directory.id={uuid_to_text(properties.directory_id)}")
    lines += [f"node.id={properties.node_id}", f"version={VERSION}"]
    lines.append(f"{_OTTLA_FORMAT}={OTTLA_FORMAT}")
    if properties.has_voter_files:
        lines.append(f"{_VOTER_FILES}=true")
    lines.append("")
    return "\n".join(lines).encode()


def parse_meta_properties(data: bytes) -> MetaProperties:
    """Return the identity of a directory in the bytes of a `meta.properties` file.

    Raises CorruptDataError, which names the missing or wrong line, and NewerReleaseError if a newer
    release formatted the directory.
    """
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise CorruptDataError(f"{META_PROPERTIES_FILE}: it is not UTF-8") from None
    values: dict[str, str] = {}
    for line in lines:
        key, separator, value = line.strip().partition("=")
        if separator and not key.startswith(("#", "!")):
            values[key.strip()] = value.strip().replace("\\:", ":").replace("\\=", "=")
    _check_format(values, "version", VERSION)
    _check_format(values, _OTTLA_FORMAT, OTTLA_FORMAT)
    if values.get("version") != str(VERSION):
        raise CorruptDataError(
            f"{META_PROPERTIES_FILE}: version is {values.get('version')!r}, not {VERSION}"
        )
    cluster_id = values.get("cluster.id", "")
    if not cluster_id:
        raise CorruptDataError(f"{META_PROPERTIES_FILE}: cluster.id is missing")
    node_id = values.get("node.id", "")
    if not _is_number(node_id):
        raise CorruptDataError(f"{META_PROPERTIES_FILE}: node.id is {node_id!r}")
    directory_id = values.get("directory.id")
    return MetaProperties(
        cluster_id=cluster_id,
        node_id=NodeId(int(node_id)),
        directory_id=None if directory_id is None else uuid_from_text(directory_id),
        has_voter_files=values.get(_VOTER_FILES) == "true",
    )


def _check_format(values: Mapping[str, str], key: str, known: int) -> None:
    """Raise NewerReleaseError if the format number in the property `key` of `meta.properties` is
    above `known`."""
    found = values.get(key, "0")
    if _is_number(found) and int(found) > known:
        raise NewerReleaseError(
            f"{META_PROPERTIES_FILE} has {key}={found}, and Ottla {RELEASE} reads up to {known}: a "
            "newer release formatted the directory; start this node with that release"
        )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= NUMBER_DIGITS_MAX


def check_identities(
    found: Mapping[str, MetaProperties | None], *, node_id: NodeId, cluster_id: str | None
) -> str:
    """Return the cluster id of all log directories. Raises ConfigError if a directory belongs to
    another node or cluster.

    `found` maps each directory to its identity, or to None if it is not formatted. If `cluster_id`
    is None, the directories may belong to any cluster, but all to the same cluster.
    """
    expected = cluster_id
    owners: dict[UUID, str] = {}
    for path, properties in found.items():
        if properties is None:
            continue
        if properties.node_id != node_id:
            raise ConfigError(
                "node.id", f"is {node_id}, but {path} belongs to node {properties.node_id}"
            )
        expected = expected or properties.cluster_id
        if properties.cluster_id != expected:
            raise ConfigError(
                "log.dirs",
                f"{path} belongs to cluster {properties.cluster_id}, not to {expected}",
            )
        if properties.directory_id is None:
            continue
        other = owners.setdefault(properties.directory_id, path)
        if other != path:
            raise ConfigError("log.dirs", f"{path} is a copy of {other}: they share one id")
    if expected is None:
        raise ConfigError("log.dirs", "no directory is formatted; run `ottla storage format`")
    return expected


def uuid_to_text(uuid: UUID) -> str:
    """Return a UUID as Kafka prints it: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(uuid.bytes).decode().rstrip("=")


def uuid_from_text(text: str) -> UUID:
    """Return the UUID in a text that Kafka printed. Raises CorruptDataError if the text is not a
    UUID."""
    try:
        raw = urlsafe_b64decode(text + "==")
    except ValueError:
        raw = b""
    if len(text) != UUID_TEXT_LENGTH or len(raw) != 16:
        raise CorruptDataError(f"{text!r} is not a uuid of 22 base64 characters")
    return UUID(bytes=raw)
