"""Fetches that wait for enough to answer, as entries of the purgatory.  Pure."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla.broker.logs.fetch_read import FetchTarget, Reading
from ottla.broker.network.purgatory import WaitingEntry

if TYPE_CHECKING:
    from ottla.broker.logs.fetch import Fetch

PARTITIONS_READ_AGAIN = 32
"""A fetch without a session that waits for more partitions looks only at the one that wakes it, and
answers in steps.  Higher lets one append hold the loop for longer where many such fetches wait."""


def waiting(fetch: "Fetch", reading: Reading) -> "WaitingFetch":
    """Return the entry of a fetch whose first reading was not enough."""
    if fetch.session is None and len(fetch.targets) > PARTITIONS_READ_AGAIN:
        return WaitingFetchOfMany(fetch, reading)
    return WaitingFetch(fetch)


class WaitingFetch(WaitingEntry):
    """A fetch that waits, and reads all that may have news whenever it is woken."""

    __slots__ = ("_fetch", "waits_for_disk")
    kind = "Fetch"

    def __init__(self, fetch: "Fetch") -> None:
        super().__init__()
        self._fetch = fetch
        self.waits_for_disk = False
        """Whether it waits longer than its client asked, for a disk."""

    @property
    def keys(self) -> Collection[object]:
        """What to watch: a session, which hears of its partitions' events; else those."""
        session = self._fetch.session
        return _targets_by_key(self._fetch) if session is None else (session,)

    @property
    def cost(self) -> int:
        """Number of partitions that a try reads."""
        session = self._fetch.session
        return max(1, len(self._fetch.targets) if session is None else session.look_at_count)

    def try_complete(self) -> bool:
        """Answer if there is enough by now."""
        reading = self._read()
        is_here = self.waits_for_disk and not reading.waits_for_disk
        if not is_here and not self._fetch.is_enough(reading):
            return False
        self._answer(reading)
        return True

    def on_expire(self) -> None:
        """Answer with what there is."""
        self._answer(self._read())

    def on_fault(self, fault: Exception) -> None:
        """Close the connection."""
        self._fetch.context.slot.fail(fault)

    def _read(self) -> Reading:
        reading = self._fetch.read()
        self._fetch.note_positions(reading)
        return reading

    def _answer(self, reading: Reading) -> None:
        self._fetch.context.slot.complete(self._fetch.answer(reading))


class WaitingFetchOfMany(WaitingFetch):
    """A fetch of very many partitions that waits without a session.

    It keeps how much each of them has, looks only at the one that wakes it, and answers in steps:
    many such fetches may wait for one partition, whose append must not read all of all of them.
    """

    __slots__ = ("_byte_count", "_sizes", "_targets")

    def __init__(self, fetch: "Fetch", reading: Reading) -> None:
        super().__init__(fetch)
        self._targets = _targets_by_key(fetch)
        self._byte_count = reading.byte_count
        self._sizes = {
            target: len(data.records) for target, data in reading.results if data.records
        }

    @property
    def keys(self) -> Collection[object]:
        """The keys of its partitions."""
        return self._targets

    @property
    def cost(self) -> int:
        """One: the partition that wakes it."""
        return 1

    def try_complete(self) -> bool:
        """Answer if the partition that wakes it brings enough."""
        target = self._targets.get(self.woken_by)
        if target is None:
            return False
        fetch, reading = self._fetch, Reading()
        fetch.read_some(reading, (target,))
        fetch.note_positions(reading)
        self._byte_count += reading.byte_count - self._sizes.get(target, 0)
        self._sizes[target] = reading.byte_count
        if not reading.is_urgent and self._byte_count < fetch.limits.bytes_min:
            return False
        self.on_expire()
        return True

    def on_expire(self) -> None:
        """Answer with what there is, in steps."""
        self._fetch.context.slot.complete_by(self._fetch.answered_in_steps())


def _targets_by_key(fetch: "Fetch") -> dict[object, FetchTarget]:
    """Return the targets by what wakes them: the commit, and for a follower the log's end."""
    found: dict[object, FetchTarget] = {}
    for target in fetch.targets.values():
        partition = target.partition
        if partition is not None:
            found[partition.high_watermark_key] = target
            if fetch.limits.is_from_follower:
                found[partition.end_offset_key] = target
    return found
