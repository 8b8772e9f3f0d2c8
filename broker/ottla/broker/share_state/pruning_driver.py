"""Background task that deletes records of `__share_group_state` which later snapshots supersede."""

import logging

import trio

from ottla.broker.share_state.share_coordinator import ShareCoordinator
from ottla.model.errors import RefusedError
from ottla.node.part_registry import PartRegistry

logger = logging.getLogger("ottla.broker.share_states")


class ShareStatePruner:
    """Background task that raises the log start offsets of the partitions of `__share_group_state`
    that this broker leads, so that superseded records are deleted."""

    def __init__(self, coordinator: ShareCoordinator) -> None:
        self._coordinator = coordinator

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task that deletes superseded records of `__share_group_state`."""
        parts.task("pruning of share states", self.run)

    async def run(self) -> None:
        """Delete superseded records of `__share_group_state` periodically until cancelled."""
        while True:
            await trio.sleep(self._coordinator.config.prune_interval_ms / 1000)
            await self.prune()

    async def prune(self) -> None:
        """Delete the records of `__share_group_state` that later snapshots have superseded."""
        for partition, end_offset in list(self._coordinator.redundant_records()):
            log = partition.log
            if log is None or not partition.is_leader:
                continue
            try:
                log.raise_log_start(end_offset)
                await log.delete_records_before(end_offset)
            except (RefusedError, OSError) as error:
                logger.warning("redundant records of %r are kept: %s", partition, error)
            else:
                partition.on_start_raised()
