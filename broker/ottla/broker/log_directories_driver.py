"""Manages the log directories of a broker: failures, cordons, moves, free space, and offline
partitions."""

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID

import trio

from ottla.broker.cluster.describe_node import offline_problems
from ottla.broker.cluster.membership.lifecycle_driver import LifecycleDriver
from ottla.broker.cluster.settings.dynamic_settings import CLEANER_SETTINGS
from ottla.broker.quotas.move_throttle_driver import MoveThrottle
from ottla.broker.quotas.replication_quota import ReplicationQuota
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.replicas.replica_manager import OPEN_RETRY_MS, ReplicaManager
from ottla.model.errors import ConfigError
from ottla.model.ids import TopicPartition
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.storage.cordoned import CORDONED_LOG_DIRS, check_cordoned, is_cordoned
from ottla.node.part_registry import PartRegistry
from ottla.node.quorum.quorum_driver import QuorumMember
from ottla.storage.directories.free_space import FreeSpaceReport
from ottla.storage.directories.log_directory_driver import LogDirectory
from ottla.storage.manager.log_manager_driver import LogManager

PLACED_POLL_S = 0.1
"""Seconds between two checks whether the metadata names the new log directory of a replica that was
moved."""

logger = logging.getLogger("ottla.broker")


class LogDirectories:
    """Connects the log manager of a broker with its replicas and with the controller."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        logs: LogManager,
        table: PartitionTable,
        replicas: ReplicaManager,
        lifecycle: LifecycleDriver,
        member: QuorumMember,
        move_quota: ReplicationQuota,
    ) -> None:
        self._config = config
        self._logs = logs
        self._table = table
        self._replicas = replicas
        self._lifecycle = lifecycle
        self._member = member
        logs.on_directory_failed = self._on_directory_failed
        logs.on_moved = replicas.on_moved
        logs.moves.throttle = MoveThrottle(move_quota).take
        logs.moves.announce = self._wait_until_placed
        logs.moves.withdraw = replicas.report_place
        self._cordon(config.cordoned_log_dirs)

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task, the settings, the metrics and the problem reports of the
        log directories."""
        parts.task("retries of logs", self._retry)
        parts.setting(CORDONED_LOG_DIRS, self._cordon)
        for key in CLEANER_SETTINGS:
            parts.setting(key, partial(self._set_up_cleaner, key))
        parts.figures(self._figures)
        parts.problems(self._problems)

    def free_spaces(self) -> list[FreeSpaceReport]:
        """Return the free space of each log directory of this broker. If the metadata log has a
        separate directory, its free space is the last entry."""
        free_spaces = [one.free_space for one in self._logs.directories if one.is_live]
        free_spaces += [] if self._member.free_space in free_spaces else [self._member.free_space]
        return [each.report() for each in free_spaces]

    async def _retry(self) -> None:
        while True:
            await trio.sleep(OPEN_RETRY_MS / 1_000)
            self._replicas.retry()

    async def _wait_until_placed(self, at: TopicPartition, directory_id: UUID) -> None:
        """Wait until the metadata names a log directory for a replica of this broker (KIP-858)."""
        while not self._replicas.is_placed(at, directory_id):
            await trio.sleep(PLACED_POLL_S)

    def _set_up_cleaner(self, key: str, value: Any) -> None:
        self._logs.cleaner.reconfigure(**{CLEANER_SETTINGS[key]: value})

    def _cordon(self, paths: tuple[str, ...]) -> None:
        """Refuse new replicas in the log directories with these paths, and accept them in all other
        directories. Reports the change to the controller."""
        try:
            check_cordoned(paths, self._config.log_dirs)
        except ConfigError as error:  # Set for all brokers, or by another broker.
            logger.warning("%s", error)
        for directory in self._logs.directories:
            directory.is_cordoned = is_cordoned(directory.path, paths)
        self._lifecycle.report_cordoned_directories(
            tuple(
                one.directory_id
                for one in self._logs.directories
                if one.is_cordoned and one.directory_id is not None
            )
        )

    def _on_directory_failed(self, directory: LogDirectory) -> None:
        self._replicas.on_directory_failed(directory.path, directory.failure or directory.path)
        self._lifecycle.report_offline_directories(
            tuple(
                failed.directory_id
                for failed in self._logs.directories
                if not failed.is_live and failed.directory_id is not None
            )
        )

    def _figures(self) -> dict[str, float]:
        return {
            "partitions.led": sum(1 for partition in self._table if partition.is_leader),
            "partitions.offline": len(self._logs.offline),
            "partitions": len(self._logs),
            "partitions.moving": len(self._logs.moves),
        }

    def _problems(self) -> Iterator[str]:
        """Yield a problem description for each partition of this broker that is offline, is damaged
        or cannot be compacted."""
        offline = self._logs.offline
        for partition in self._table:
            at = TopicPartition(partition.topic, partition.index)
            log = partition.log
            failure = partition.storage_failure if log is None else log.failure
            if failure is not None:
                offline.setdefault(at, failure)
            if partition.damage is not None:
                yield f"{at} has damaged records: {partition.damage}"
        yield from offline_problems(offline.items(), self._logs.losses.values())
        for at, reason in self._logs.cleaner.manager.uncleanable.items():
            yield f"{at} is not compacted before 'ottla cleaner retry' or a restart: {reason}"
