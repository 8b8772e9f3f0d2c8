"""Records that a scenario writes to a simulated cluster, and records that it reads from one."""

from dataclasses import dataclass
from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]
"""Headers of a record: pairs of name and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioRecord:
    """One record for a topic of the simulated cluster. Public name: `world.Record`."""

    value: bytes | None
    """Value of the record. None writes a tombstone."""
    key: bytes | None = None
    """Key of the record. If the records of a call have no key, they are spread over the
    partitions."""
    headers: Headers = ()
    partition: int | None = None
    """Partition of the record. If it is None, the key determines the partition."""
    timestamp_ms: int | None = None
    """Timestamp in ms since 1970. None uses the simulated clock."""


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    """One record that is in a topic of the simulated cluster."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 0
    """Timestamp of the record in ms since 1970."""

    @property
    def place(self) -> str:
        """Topic, partition and offset as text, such as `orders-0@17`."""
        return f"{self.topic}-{self.partition}@{self.offset}"


class LagReading(NamedTuple):
    """The lag of a consumer group at one moment of a run."""

    at_s: float
    """Virtual seconds since the start of the run."""
    lag: int
    """Number of records that the group has not committed yet."""
    group: str = ""
