"""Replays the log of a partition of `__consumer_offsets` into its shard. Pure except for reading
the log."""

from ottla.broker.coordinators.log_replay import LogReplay
from ottla.broker.groups.shard import GroupShard
from ottla.model.errors import CorruptDataError
from ottla.model.ids import NO_PRODUCER_ID
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.log.log import Log
from ottla.storage.recovery.recovery import end_marker_of
from ottla.wire.batch import BatchHeader
from ottla.wire.records import Record


class GroupReplay(LogReplay):
    """Replay of a partition of `__consumer_offsets` into the shard of its groups. Offsets committed
    in a transaction take effect at the transaction's marker."""

    def __init__(self, log: Log, shard: GroupShard, errors: UnexpectedErrors) -> None:
        super().__init__(log, shard, errors)
        self._groups = shard

    def _replay_record(self, record: Record, header: BatchHeader) -> None:
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        self._groups.replay(record.key, record.value, producer_id)

    def _replay_control(self, data: bytes | bytearray, at: int, header: BatchHeader) -> None:
        try:
            marker = end_marker_of(data, at, header)
        except CorruptDataError as error:
            self._skip(header.base_offset, error)
            return
        if marker is not None:
            self._groups.store.end_transaction(header.producer_id, is_commit=not marker.is_abort)
