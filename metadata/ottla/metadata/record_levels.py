"""Levels of ottla.version from which kinds and fields of metadata records are written.

A release reads records of all levels that it supports, and writes only records that the finalised
level allows. The previous release can therefore read all records in the log and in the snapshots.
Each node can return to it until an operator raises the level. Invariant WritableLevels: no record
is appended below its level.

A new kind of record gets an entry here, with the level of the next release. A release that changes
no record has no level of its own. Kafka's MetadataVersion has the same purpose for its records.
"""

from collections.abc import Iterable

from ottla.metadata.features import OTTLA_VERSION, OTTLA_VERSION_OF_CONTROLLERS, SUPPORTED
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import Record

KINDS = {
    "register_controller": OTTLA_VERSION_OF_CONTROLLERS,
    "unregister_controller": OTTLA_VERSION_OF_CONTROLLERS,
}
"""Lowest level of the feature ottla.version for each kind of metadata record that release 0.2.0
cannot read."""

FIELDS: dict[tuple[str, str], int] = {}
"""Lowest level of ottla.version for fields that were added to existing kinds of metadata records
after release 0.2.0. Keys are the kind and the name of the field."""

HIGHEST = SUPPORTED[OTTLA_VERSION].highest


def level_of(record: Record) -> int:
    """Return the lowest level of the feature ottla.version at which a metadata record may be
    written."""
    kind = record.WhichOneof("record")
    assert kind is not None
    levels = [KINDS.get(kind, 0)]
    if FIELDS:
        present = (field.name for field, _ in getattr(record, kind).ListFields())
        levels += [FIELDS.get((kind, name), 0) for name in present]
    return max(levels)


def check_writable(records: Iterable[Record], image: MetadataImage) -> None:
    """Assert that metadata records may be written in a cluster with the feature levels of an image.

    At the highest level of ottla.version everything may be written, so that nothing is checked.
    """
    level = image.features.get(OTTLA_VERSION, 0)
    if level >= HIGHEST:
        return
    for record in records:
        assert level_of(record) <= level, f"WritableLevels: {record.WhichOneof('record')}"
