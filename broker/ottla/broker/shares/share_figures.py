"""Counters for metrics of share partitions, share sessions and share requests (KIP-932). Pure."""

from collections import Counter
from collections.abc import Sequence

from ottla.broker.shares.share_partition import AckBatch


class ReadTimes:
    """Durations of the attempts of ShareFetch requests to read one share partition, as Kafka's
    `FetchLockTimeMs` and `FetchLockRatio` measure them.

    Kafka locks the share partition during an attempt. Here an attempt is one step of the event
    loop, so that no lock is needed.
    """

    __slots__ = ("_ended_ms", "count", "percent_sum", "sum_ms")

    def __init__(self) -> None:
        self.count = 0
        """Number of attempts to read the share partition."""
        self.sum_ms = 0
        """Total duration of the attempts in milliseconds."""
        self.percent_sum = 0
        """Sum of a percentage over all attempts: the attempt's duration relative to the time since
        the end of the previous attempt."""
        self._ended_ms: int | None = None

    def note(self, begun_ms: int, ended_ms: int) -> None:
        """Record an attempt to read the share partition. Both times are monotonic, in milliseconds.

        As in Kafka, an attempt shorter than 1 ms counts as the share 1/n of the time, where n is
        the number of milliseconds since the previous attempt.
        """
        took_ms = ended_ms - begun_ms
        idle_ms = 0 if self._ended_ms is None else begun_ms - self._ended_ms
        self._ended_ms = ended_ms
        self.count += 1
        self.sum_ms += took_ms
        if not idle_ms:
            self.percent_sum += 100
        else:
            self.percent_sum += 100 * took_ms // (took_ms + idle_ms) if took_ms else 100 // idle_ms


class GroupFigures:
    """Counters of the ShareFetch requests of one share group. They exist while the group has
    sessions on this broker."""

    __slots__ = (
        "acquired_partition_count",
        "acquisition_count",
        "acquisition_ms",
        "partition_count",
    )

    def __init__(self) -> None:
        self.partition_count = 0
        """Number of partitions that ShareFetch requests of the group have read."""
        self.acquired_partition_count = 0
        """Number of partitions from which ShareFetch requests of the group have acquired
        records."""
        self.acquisition_count = 0
        """Number of ShareFetch requests of the group that have acquired records."""
        self.acquisition_ms = 0
        """Total time in milliseconds from the arrival of the group's ShareFetch requests until they
        acquired records."""


class ShareFigures:
    """Counters of share requests and their records since the start of this broker."""

    def __init__(self) -> None:
        self.fetch_count = 0
        """Number of ShareFetch requests since the start of this broker."""
        self.failed_fetch_count = 0
        """Number of partitions in ShareFetch requests that were answered with an error."""
        self.acknowledge_count = 0
        """Number of ShareAcknowledge requests, and of ShareFetch requests with acknowledgements."""
        self.failed_acknowledge_count = 0
        """Number of partitions whose acknowledgements were answered with an error."""
        self.acknowledged_records: Counter[int] = Counter()
        """Number of acknowledged records, by the type of acknowledgement (such as accept or
        reject)."""
        self.expired_count = 0
        """Number of ShareFetch requests that waited in the purgatory until their timeout."""
        self.by_group: dict[str, GroupFigures] = {}
        """Counters of each share group that has sessions on this broker, by group id."""
        self.load_ms_max = 0
        """Longest time to load the state of a share partition, in milliseconds."""

    def note_load(self, load_ms: int) -> None:
        """Record the duration in milliseconds of loading the state of a share partition."""
        self.load_ms_max = max(self.load_ms_max, load_ms)

    def note_read(self, group_id: str, count: int, acquired_count: int, took_ms: int) -> None:
        """Record that a ShareFetch of a group read `count` partitions and acquired records from
        `acquired_count` of them. `took_ms` is the time in milliseconds since the request
        arrived."""
        figures = self.by_group.get(group_id)
        if figures is None:
            figures = self.by_group[group_id] = GroupFigures()
        figures.partition_count += count
        if acquired_count:
            figures.acquired_partition_count += acquired_count
            figures.acquisition_count += 1
            figures.acquisition_ms += took_ms

    def note_acks(self, acks: Sequence[AckBatch]) -> None:
        """Count acknowledged records by the type of acknowledgement (such as accept or reject)."""
        for first_offset, last_offset, types in acks:
            if len(types) == 1:
                self.acknowledged_records[types[0]] += last_offset - first_offset + 1
            else:
                self.acknowledged_records.update(types)
