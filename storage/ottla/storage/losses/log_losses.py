"""Losses of a replica: records that exist according to the replica's checkpoints, but that broker
startup did not find.

Pure. The directory's own checkpoints and the cluster's metadata record the offsets that a replica's
log had reached. A replica counts as damaged if its log is missing, ends below its checkpointed high
watermark or recovery point, or cannot be assigned to its topic. KIP-966 has the same idea for
unclean shutdowns. A torn tail above both checkpoints is not a loss.

Records below the log start offset were deleted on purpose and do not count. A checkpoint line is
written only after the directory of its log is durable, so a line without a log is damage. If an
interrupted move left a log in two directories, the longer log is compared.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from ottla.model.ids import Offset, TopicIdPartition, TopicPartition
from ottla.model.values import frozen

ZERO = Offset(0)
COMMITTED_OFFSETS_TOPIC = "__consumer_offsets"


class LossKind(Enum):
    """Kind of a loss of records. Its value is the word that files, logs, metrics and JSON use."""

    MISSING = "missing"
    """Kind of loss: no log exists, although the metadata image or the directory's own checkpoints
    show that a log existed."""
    TRUNCATED = "truncated"
    """Kind of loss: the recovered log ends below its checkpointed high watermark or recovery point.
    """
    UNREADABLE = "unreadable"
    """Kind of loss: the log has records, but cannot be opened, because partition.metadata is empty
    or damaged."""
    INCOMPLETE = "incomplete"
    """Kind of loss: closed segments are missing and later ones exist, so that the log has a hole.
    """


LIKELY_CAUSES = {
    LossKind.MISSING: "its directory or its files were removed while the broker was down",
    LossKind.TRUNCATED: "its .log was cut or damaged, or a power loss took unflushed records",
    LossKind.UNREADABLE: "its partition.metadata was emptied or damaged",
    LossKind.INCOMPLETE: "files of closed segments were removed while the broker was down",
}


@frozen(kw_only=True)
class LogLoss:
    """Loss of records of one replica in one log directory."""

    topic_id: UUID
    partition: TopicPartition
    directory: str
    """Path of the log directory that contains, or should contain, the damaged log."""
    kind: LossKind
    promised_end_offset: Offset | None
    """Offset that the damaged log is known to have reached, or None if only the metadata image
    shows that the log existed."""
    found_end_offset: Offset
    """Current end offset of the damaged log, or the start of its first hole. 0 if no log exists."""
    reason: str
    """One sentence that describes the loss to the operator, with the likely cause."""

    @property
    def key(self) -> TopicIdPartition:
        """The partition of the damaged replica, with its topic id."""
        return TopicIdPartition(self.topic_id, self.partition.partition)

    def is_hole_of(self, topic_id: UUID | None) -> bool:
        """Return whether this loss is a hole in the log of the topic with this id."""
        return self.kind is LossKind.INCOMPLETE and self.topic_id == topic_id


@frozen(kw_only=True)
class LogPromise:
    """Offsets that one replica's log had reached before the broker stopped, according to its
    checkpoints and the metadata image."""

    high_watermark: Offset | None
    """Checkpointed high watermark of the replica, or None if the checkpoint has no line for its
    topic id."""
    recovery_point: Offset | None
    """Checkpointed recovery point of the replica, or None if the checkpoint has no line for its
    topic id."""
    log_start_offset: Offset = ZERO
    """Checkpointed log start offset of the replica. Records below it were deleted on purpose."""
    is_counted_on: bool = False
    """True if the metadata image has the replica in the ISR or ELR, and the partition has changed
    since its creation. The cluster then relies on the replica's records."""

    @property
    def end_offset(self) -> Offset | None:
        """Highest offset that the replica's log is known to have reached, or None if no checkpoint
        has a line for the log."""
        known = [each for each in (self.high_watermark, self.recovery_point) if each is not None]
        return max(known, default=None)


class ReplicaPlacement(NamedTuple):
    """A replica that the metadata image places on this broker, with its log directory."""

    topic_id: UUID
    partition: TopicPartition
    directory_id: UUID | None
    """Id of the log directory that the cluster has assigned to the replica, or None if no directory
    is assigned."""
    is_counted_on: bool
    """True if the replica is in the ISR or ELR, and the partition has changed since its creation.
    The cluster then relies on the replica's records."""


@frozen(kw_only=True)
class DirectoryFindings:
    """Logs and checkpoints that the broker found in one log directory at startup."""

    path: str
    directory_id: UUID | None
    was_clean: bool
    """True if a clean shutdown wrote the directory's checkpoints, which are then exact."""
    has_whole_checkpoints: bool
    """True if the directory's checkpoints, and the side file with their topic ids, existed and were
    readable."""
    promise_of: Callable[[TopicPartition, UUID], LogPromise]
    """Function that returns the offsets that a log had reached, according to the directory's
    checkpoints. Its arguments are the partition and the topic id."""
    end_offsets: Mapping[tuple[TopicPartition, UUID], Offset]
    """End offset of each log that was opened in the directory, by partition and topic id."""
    hole_offsets: Mapping[tuple[TopicPartition, UUID], Offset]
    """Start of the first hole (range of missing offsets) of each opened log with a hole."""
    unopened: Mapping[tuple[TopicPartition, UUID], str]
    """Logs of the directory that cannot be opened, each with the reason."""
    unnamed: Collection[TopicPartition]
    """Partitions whose log in the directory has records but no readable topic id."""


def kind_of_absence(
    promise: LogPromise, *, was_clean: bool, has_whole_checkpoints: bool
) -> LossKind | None:
    """Return the kind of loss if a replica has no log at all. Returns None if neither the replica's
    checkpoints nor the metadata image show that it had records.

    After a clean shutdown (`was_clean`) the checkpoints are exact. Otherwise a checkpoint line that
    promises no records may be out of date, because records may have been appended later. A log
    without a line in complete checkpoints was created after they were written, or never existed. If
    the checkpoints are incomplete, only the metadata image shows that the log existed.
    """
    end_offset = promise.end_offset
    if end_offset is None:
        is_lost = promise.is_counted_on and not has_whole_checkpoints
    elif end_offset > promise.log_start_offset:
        is_lost = True
    else:
        is_lost = promise.is_counted_on and not was_clean
    return LossKind.MISSING if is_lost else None


def kind_of_shortfall(promise: LogPromise, *, end_offset: Offset) -> LossKind | None:
    """Return the kind of loss of a recovered log that ends at `end_offset`. Returns None if the log
    still reaches all offsets of `promise`."""
    promised = promise.end_offset
    if promised is None or end_offset >= promised:
        return None
    return LossKind.TRUNCATED


class StartFindings:
    """Logs and checkpoints found in all online log directories at one broker startup. Comparing
    them shows the losses of records."""

    def __init__(
        self, directories: Sequence[DirectoryFindings], *, is_every_directory_live: bool
    ) -> None:
        self._directories = directories
        self._is_every_directory_live = is_every_directory_live
        self._ends: dict[tuple[TopicPartition, UUID], tuple[Offset, str]] = {}
        for directory in directories:
            for key, end_offset in directory.end_offsets.items():
                known = self._ends.get(key)
                if known is None or known[0] < end_offset:
                    self._ends[key] = end_offset, directory.path

    def losses(
        self,
        placements: Sequence[ReplicaPlacement] | None,
        remembered: Collection[LogLoss],
    ) -> list[LogLoss]:
        """Return the losses of replicas that the metadata image places on this broker, and the
        stored losses that persist.

        `placements` is None if no image is known; a missing log is then not a loss. `remembered`
        are the stored losses. A stored loss ends when the log reaches the promised offset, or when
        its replica is no longer placed on this broker.
        """
        found = {loss.key: loss for loss in self._shortfalls()}
        for directory in self._directories:
            for (partition, topic_id), reason in directory.unopened.items():
                loss = self._loss(directory, partition, topic_id, LossKind.UNREADABLE, reason)
                found[loss.key] = loss
        placed = {TopicIdPartition(at.topic_id, at.partition.partition) for at in placements or ()}
        for placement in placements or ():
            absence = self._absence(placement)
            if absence is not None and absence.key not in found:
                found[absence.key] = absence
        for loss in remembered:
            is_here = placements is None or loss.key in placed
            if is_here and not self._is_recovered(loss):
                found[loss.key] = self._updated_loss(loss, found.get(loss.key))
        return [loss for key, loss in found.items() if placements is None or key in placed]

    def _promise(self, partition: TopicPartition, topic_id: UUID) -> LogPromise:
        """Return the offsets that a partition's log had reached, according to checkpoints. If
        several directories have checkpoints for the log, the checkpoints with the highest end
        offset apply."""
        promises = [each.promise_of(partition, topic_id) for each in self._directories]
        return max(promises, key=lambda one: -1 if one.end_offset is None else one.end_offset)

    def _shortfalls(self) -> list[LogLoss]:
        """Return the losses of opened logs: a log ends below an offset that it had reached before,
        or has a hole (missing offsets). For a log with a hole, only the hole is reported."""
        losses = []
        by_path = {directory.path: directory for directory in self._directories}
        for (partition, topic_id), (end_offset, path) in self._ends.items():
            promise = self._promise(partition, topic_id)
            kind = kind_of_shortfall(promise, end_offset=end_offset)
            if (partition, topic_id) in by_path[path].hole_offsets:
                kind = LossKind.INCOMPLETE
            if kind is not None:
                losses.append(self._loss(by_path[path], partition, topic_id, kind))
        return losses

    def _absence(self, placement: ReplicaPlacement) -> LogLoss | None:
        partition, topic_id = placement.partition, placement.topic_id
        if (partition, topic_id) in self._ends or not self._directories:
            return None
        home = self._directories[0]
        if placement.directory_id is not None:
            homes = [at for at in self._directories if at.directory_id == placement.directory_id]
            if not homes and not self._is_every_directory_live:
                return None  # it may be in a directory that failed
            if not homes:
                cause = f"log directory {placement.directory_id} is not one of log.dirs any longer"
                return self._loss(home, partition, topic_id, LossKind.MISSING, cause)
            home = homes[0]
        elif not self._is_every_directory_live:
            return None
        known = self._promise(partition, topic_id)
        promise = LogPromise(
            high_watermark=known.high_watermark,
            recovery_point=known.recovery_point,
            log_start_offset=known.log_start_offset,
            is_counted_on=placement.is_counted_on,
        )
        kind = kind_of_absence(
            promise, was_clean=home.was_clean, has_whole_checkpoints=home.has_whole_checkpoints
        )
        if kind is None:
            return None
        for directory in self._directories:
            if partition in directory.unnamed:
                return self._loss(directory, partition, topic_id, LossKind.UNREADABLE)
        return self._loss(home, partition, topic_id, kind)

    def _loss(
        self,
        directory: DirectoryFindings,
        partition: TopicPartition,
        topic_id: UUID,
        kind: LossKind,
        cause: str | None = None,
    ) -> LogLoss:
        end_offset = self._ends.get((partition, topic_id), (ZERO, ""))[0]
        if kind is LossKind.INCOMPLETE:
            end_offset = directory.hole_offsets[partition, topic_id]
        promised = self._promise(partition, topic_id).end_offset
        return LogLoss(
            topic_id=topic_id,
            partition=partition,
            directory=directory.path,
            kind=kind,
            promised_end_offset=promised,
            found_end_offset=end_offset,
            reason=reason_of(partition, kind, promised, end_offset, cause),
        )

    def _is_recovered(self, loss: LogLoss) -> bool:
        if loss.kind is LossKind.INCOMPLETE:
            return False  # the end offset does not show whether a hole was filled
        end_offset = self._ends.get((loss.partition, loss.topic_id), (ZERO, ""))[0]
        return loss.promised_end_offset is not None and end_offset >= loss.promised_end_offset

    def _updated_loss(self, loss: LogLoss, again: LogLoss | None) -> LogLoss:
        """Return the stored loss `loss`, updated with the state of this startup. The higher
        promised offset is stored.

        `again` is the loss of the same log as found at this startup, or None if the log now has no
        loss.
        """
        promises = [loss.promised_end_offset] + ([again.promised_end_offset] if again else [])
        promised = max((one for one in promises if one is not None), default=None)
        end_offset = self._ends.get((loss.partition, loss.topic_id), (ZERO, ""))[0]
        kind = loss.kind
        for one in (loss, again):
            if one is not None and one.kind is LossKind.INCOMPLETE:
                kind, end_offset = one.kind, min(end_offset, one.found_end_offset)
        return LogLoss(
            topic_id=loss.topic_id,
            partition=loss.partition,
            directory=loss.directory,
            kind=kind,
            promised_end_offset=promised,
            found_end_offset=end_offset,
            reason=again.reason
            if again is not None and again.kind is kind and again.found_end_offset == end_offset
            else reason_of(loss.partition, kind, promised, end_offset),
        )


def reason_of(
    partition: TopicPartition,
    kind: LossKind,
    promised: Offset | None,
    end_offset: Offset,
    cause: str | None = None,
) -> str:
    """Return a sentence that describes a loss of records to the operator."""
    if kind is LossKind.TRUNCATED:
        text = f"its log ends at offset {end_offset}, though it had reached {promised}"
    elif kind is LossKind.INCOMPLETE:
        text = f"its log has a hole from offset {end_offset} on, though it had reached {promised}"
    else:
        had = "had records" if promised is None else f"had reached offset {promised}"
        verb = "is gone" if kind is LossKind.MISSING else "cannot be opened"
        text = f"its log {verb}, though it {had}"
    if partition.topic == COMMITTED_OFFSETS_TOPIC:
        text += "; offsets that consumer groups committed are among what it lacks"
    return f"{text}; likely cause: {cause or LIKELY_CAUSES[kind]}"
