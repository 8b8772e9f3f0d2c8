"""Ids of log directories that name no directory (KIP-858); a real one is never below 100."""

from uuid import UUID

MIGRATING = UUID(int=0)
"""The broker does not know directories yet; kept for Kafka's numbering, never written by us."""

UNASSIGNED = UUID(int=1)
"""The broker will choose, and then report its choice."""

LOST = UUID(int=2)
"""The directory is offline, and which one it was does not matter any more."""

RESERVED_COUNT = 100


def is_reserved(directory_id: UUID) -> bool:
    """Return whether no real directory may have this id."""
    return directory_id.int < RESERVED_COUNT
