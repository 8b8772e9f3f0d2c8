"""Reserved directory ids, which do not identify a log directory (KIP-858). As a 128-bit number, the
id of a real directory is at least 100."""

from uuid import UUID

MIGRATING = UUID(int=0)
"""Directory id of a replica whose broker does not support directory ids yet. Kafka reserves this
id. Ottla never writes it."""

UNASSIGNED = UUID(int=1)
"""Directory id of a replica whose broker has not yet chosen a log directory. The broker will report
its choice to the controller."""

LOST = UUID(int=2)
"""Directory id of a replica whose log directory is offline. The identity of that directory no
longer matters."""

RESERVED_COUNT = 100


def is_reserved(directory_id: UUID) -> bool:
    """Return True if a directory id is reserved. A real log directory must not have a reserved
    id."""
    return directory_id.int < RESERVED_COUNT
