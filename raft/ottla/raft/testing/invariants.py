"""What must hold after every step of every replica, whatever the network and the disks do.

OneLeaderPerEpoch, MonotonicEpoch, MonotonicHighWatermark, ConsistentCommittedData,
LeaderCompleteness, LeaderAppendOnly and LogMatching; PersistedBeforeAnswered is judged where the
answers leave (`member`).
"""

from ottla.model.ids import Epoch, NodeId, Offset
from ottla.raft.quorum import QuorumCore
from ottla.raft.testing.memory_log import Entry, MemoryLog


class Invariants:
    """The memory of an all-seeing judge: who led which epoch, and what was committed."""

    def __init__(self) -> None:
        self.leaders: dict[Epoch, NodeId] = {}
        self.committed: list[Entry] = []
        self._epochs: dict[NodeId, Epoch] = {}
        self._high_watermarks: dict[NodeId, Offset] = {}
        self._matched_ends: dict[NodeId, Offset] = {}
        self._written: dict[tuple[int, Epoch], tuple[Entry, Epoch]] = {}
        """By offset and epoch: the one entry there may ever be, and the epoch of the one before."""
        self._leaders_ends: dict[Epoch, tuple[Offset, Entry | None]] = {}

    def check(self, node_id: NodeId, core: QuorumCore, log: MemoryLog) -> None:
        """Judge one replica just after its effects were performed."""
        self._check_epoch(node_id, core)
        self._check_leader(node_id, core, log)
        self._check_log_matching(node_id, log)
        self._check_leader_append_only(node_id, core, log)
        self._check_committed(node_id, core, log)

    def forget_volatile(self, node_id: NodeId) -> None:
        """A crash takes back a high watermark and what was not flushed; never an epoch."""
        self._high_watermarks.pop(node_id, None)
        self._matched_ends.pop(node_id, None)

    def _check_epoch(self, node_id: NodeId, core: QuorumCore) -> None:
        before = self._epochs.get(node_id, core.epoch)
        assert core.epoch >= before, f"MonotonicEpoch: {node_id} went {before} -> {core.epoch}"
        self._epochs[node_id] = core.epoch

    def _check_leader(self, node_id: NodeId, core: QuorumCore, log: MemoryLog) -> None:
        if not core.is_leader:
            return
        is_new = core.epoch not in self.leaders
        leader = self.leaders.setdefault(core.epoch, node_id)
        assert leader == node_id, f"OneLeaderPerEpoch: {leader} and {node_id} lead {core.epoch}"
        if is_new:
            for offset, entry in enumerate(self.committed):
                assert log.entry(offset) == entry, f"LeaderCompleteness: {node_id} lacks {offset}"

    def _check_log_matching(self, node_id: NodeId, log: MemoryLog) -> None:
        """Judge what this step appended; by induction all below an equal entry is equal too."""
        start = max(log.start_offset, min(self._matched_ends.get(node_id, 0), log.end_offset))
        for offset in range(start, log.end_offset):
            entry = log.entry(offset)
            assert entry is not None
            before = log.entry(offset - 1) if offset > 0 else None
            found = (entry, Epoch(0) if before is None else before.epoch)
            known = self._written.setdefault((offset, entry.epoch), found)
            assert known == found, f"LogMatching: {node_id} has {found} at {offset}, not {known}"
        self._matched_ends[node_id] = log.end_offset

    def _check_leader_append_only(self, node_id: NodeId, core: QuorumCore, log: MemoryLog) -> None:
        if not core.is_leader:
            return
        end_offset, last = self._leaders_ends.get(core.epoch, (Offset(0), None))
        assert log.end_offset >= end_offset, f"LeaderAppendOnly: {node_id} cut its log"
        if end_offset > 0:
            assert log.entry(end_offset - 1) == last, f"LeaderAppendOnly: {node_id} wrote anew"
        self._leaders_ends[core.epoch] = (log.end_offset, log.entry(log.end_offset - 1))

    def _check_committed(self, node_id: NodeId, core: QuorumCore, log: MemoryLog) -> None:
        before = self._high_watermarks.get(node_id, Offset(0))
        now = core.high_watermark
        assert now >= before, f"MonotonicHighWatermark: {node_id} went {before} -> {now}"
        assert now <= log.end_offset, f"{node_id} commits {now}, its log ends at {log.end_offset}"
        for offset in range(before, now):
            entry = log.entry(offset)
            assert entry is not None
            if offset == len(self.committed):
                self.committed.append(entry)
            assert self.committed[offset] == entry, (
                f"ConsistentCommittedData: {node_id} has {entry} at {offset}, "
                f"{self.committed[offset]} was committed"
            )
        self._high_watermarks[node_id] = now
