"""The `leader-epoch-checkpoint` file is written when the epochs have changed, and only then."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ottla.model.ids import Epoch, Offset
from ottla.storage.log.epoch_file import EpochFile
from ottla.storage.segments.epoch_cache import NO_EPOCHS, EpochCache


class SlowDisk:
    """A disk on which other work may happen before a file is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def write_atomically(self, path: str, data: bytes) -> None:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        self.written.append(data)


def state_on(disk: SlowDisk) -> Any:
    """Return the part of a log's state that the writer uses, with one epoch."""
    epochs = EpochCache()
    epochs.assign(Epoch(1), Offset(0))
    return SimpleNamespace(
        disk=disk,
        directory="/t-0",
        epochs=epochs,
        epochs_written_change=None,
        durable_epochs=NO_EPOCHS,
    )


async def test_epochs_are_written_once_for_each_change() -> None:
    disk = SlowDisk()
    state = state_on(disk)
    for _ in range(2):
        await EpochFile(state).write()
    assert disk.written == [state.epochs.encode()]


async def test_an_epoch_that_begins_during_a_write_is_written_by_the_next_one() -> None:
    disk = SlowDisk()
    state = state_on(disk)
    disk.meanwhile = lambda: state.epochs.assign(Epoch(2), Offset(10))
    for _ in range(2):
        await EpochFile(state).write()
    assert disk.written[1:] == [state.epochs.encode()]
    assert state.durable_epochs == state.epochs.encode()


async def test_epochs_that_are_replaced_during_a_write_are_written_by_the_next_one() -> None:
    disk = SlowDisk()
    state = state_on(disk)

    def replace() -> None:
        # As many changes as the old epochs have had.
        state.epochs = EpochCache()
        state.epochs.assign(Epoch(7), Offset(3))
        state.epochs_written_change = None

    disk.meanwhile = replace
    for _ in range(2):
        await EpochFile(state).write()
    assert disk.written[1:] == [state.epochs.encode()]
