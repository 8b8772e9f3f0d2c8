"""Writer of the `leader-epoch-checkpoint` file of a log. The file is written durably whenever the
log's leader epochs have changed."""

from ottla.storage.log.log_state import LogState
from ottla.storage.segments.files import LEADER_EPOCH_CHECKPOINT


class EpochFile:
    """Writer of the `leader-epoch-checkpoint` file of one log."""

    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    async def write(self) -> None:
        """Write the log's leader epochs to the file durably. Does nothing if the file already
        contains them.

        Raises OSError if the disk fails.
        """
        state = self._state
        epochs = state.epochs
        change_count = epochs.change_count
        if change_count == state.epochs_written_change:
            return
        data = epochs.encode()
        if data != state.durable_epochs:
            state.durable_epochs = None
            path = f"{state.directory}/{LEADER_EPOCH_CHECKPOINT}"
            await state.disk.write_atomically(path, data)
            state.durable_epochs = data
        if state.epochs is epochs:
            state.epochs_written_change = change_count
