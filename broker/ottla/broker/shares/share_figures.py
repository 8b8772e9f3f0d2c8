"""Counters of share partitions, sessions and share requests, for metrics (KIP-932).  Pure."""

from collections import Counter
from collections.abc import Sequence

from ottla.broker.shares.share_partition import AckBatch


class ShareFigures:
    """Counters since the start of this broker."""

    def __init__(self) -> None:
        self.fetch_count = 0
        """ShareFetch requests."""
        self.failed_fetch_count = 0
        """Partitions of ShareFetch requests that were answered with an error."""
        self.acknowledge_count = 0
        """ShareAcknowledge requests, and ShareFetch requests with acknowledgements."""
        self.failed_acknowledge_count = 0
        """Partitions whose acknowledgements were answered with an error."""
        self.acknowledged_records: Counter[int] = Counter()
        """Acknowledged records by type."""
        self.expired_count = 0
        """ShareFetch requests that waited until their timeout."""
        self.requested_partition_count = 0
        """Partitions that ShareFetch requests read."""
        self.acquired_partition_count = 0
        """Partitions from which they acquired records."""
        self.load_ms_max = 0
        """Longest time to load the state of a share partition."""

    def note_load(self, load_ms: int) -> None:
        """Note the time to load the state of a share partition."""
        self.load_ms_max = max(self.load_ms_max, load_ms)

    def note_acks(self, acks: Sequence[AckBatch]) -> None:
        """Count acknowledged records by type."""
        for first_offset, last_offset, types in acks:
            if len(types) == 1:
                self.acknowledged_records[types[0]] += last_offset - first_offset + 1
            else:
                self.acknowledged_records.update(types)
