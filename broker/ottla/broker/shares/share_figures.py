"""Counters for metrics of share partitions, share sessions and share requests (KIP-932). Pure."""

from collections import Counter
from collections.abc import Sequence

from ottla.broker.shares.share_partition import AckBatch


class ShareFigures:
    """Counters of share requests and their records since the start of this broker."""

    def __init__(self) -> None:
        self.fetch_count = 0
        """Number of ShareFetch requests."""
        self.failed_fetch_count = 0
        """Number of partitions in ShareFetch requests that were answered with an error."""
        self.acknowledge_count = 0
        """Number of ShareAcknowledge requests, and of ShareFetch requests with acknowledgements."""
        self.failed_acknowledge_count = 0
        """Number of partitions whose acknowledgements were answered with an error."""
        self.acknowledged_records: Counter[int] = Counter()
        """Number of acknowledged records by type of acknowledgement."""
        self.expired_count = 0
        """Number of ShareFetch requests that waited until their timeout."""
        self.requested_partition_count = 0
        """Number of partitions that ShareFetch requests have read."""
        self.acquired_partition_count = 0
        """Number of partitions from which ShareFetch requests have acquired records."""
        self.load_ms_max = 0
        """Longest time to load the state of a share partition, in milliseconds."""

    def note_load(self, load_ms: int) -> None:
        """Record the milliseconds that loading the state of a share partition took."""
        self.load_ms_max = max(self.load_ms_max, load_ms)

    def note_acks(self, acks: Sequence[AckBatch]) -> None:
        """Count acknowledged records by the type of acknowledgement."""
        for first_offset, last_offset, types in acks:
            if len(types) == 1:
                self.acknowledged_records[types[0]] += last_offset - first_offset + 1
            else:
                self.acknowledged_records.update(types)
