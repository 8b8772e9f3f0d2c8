"""Reserved directory ids, which do not identify a log directory (KIP-858). As a 128-bit number, the
id of a real directory is at least 100."""

from uuid import UUID

MIGRATING = UUID(int=0)
"""State of a replica whose broker does not support directory ids yet. The id is reserved by Kafka's
numbering; Ottla never writes it."""

UNASSIGNED = UUID(int=1)
"""State of a replica whose broker has yet to choose a directory, and will then report its
choice."""

LOST = UUID(int=2)
"""State of a replica whose directory is offline, so that its identity no longer matters."""

RESERVED_COUNT = 100


def is_reserved(directory_id: UUID) -> bool:
    """Return True if the id is reserved, so that no real directory may have it."""
    return directory_id.int < RESERVED_COUNT
