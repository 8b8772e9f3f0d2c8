"""Reads and changes the levels of this process's loggers: the resource BROKER_LOGGER (KIP-412).

Changes are not stored, so a restarted broker has its initial levels. The loggers have Ottla's own
names, and `root`; the levels are Kafka's.
"""

import logging
from collections.abc import Sequence

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.logs import LEVELS
from ottla.model.settings.resources import AlterOperation
from ottla.wire.messages.incremental_alter_configs_request import AlterableConfig

ROOT = "root"
OURS = "ottla"


class LogLevels:
    """Levels of the loggers of this process, which can be read and changed."""

    def __init__(self, manager: logging.Manager = logging.root.manager) -> None:
        self._manager = manager

    def levels(self) -> dict[str, str]:
        """Return the effective level of every logger by its name, with the root logger first."""
        return {name: _name_of(found) for name, found in self._loggers().items()}

    def check(self, changes: Sequence[AlterableConfig]) -> None:
        """Raise RefusedError if a change of log levels names an unknown logger, or an operation or
        level that is not supported."""
        loggers = self._loggers()
        for change in changes:
            if change.config_operation not in (AlterOperation.SET, AlterOperation.DELETE):
                raise RefusedError(
                    ErrorCode.INVALID_REQUEST,
                    f"{_operation(change.config_operation)} operation is not allowed for the "
                    "BROKER_LOGGER resource",
                )
            if change.name not in loggers:
                raise RefusedError(
                    ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!"
                )
            if change.config_operation == AlterOperation.DELETE:
                if change.name == ROOT:
                    raise RefusedError(
                        ErrorCode.INVALID_REQUEST,
                        f"Removing the log level of the {ROOT} logger is not allowed",
                    )
            elif change.value not in LEVELS:
                raise RefusedError(
                    ErrorCode.INVALID_CONFIG,
                    f"Cannot set the log level of {change.name} to {change.value} as it is not a "
                    f"supported log level. Valid log levels are {', '.join(sorted(LEVELS))}",
                )

    def apply(self, changes: Sequence[AlterableConfig]) -> None:
        """Change the levels of loggers. The caller must have passed the changes to `check`
        first."""
        loggers = self._loggers()
        for change in changes:
            is_set = change.config_operation == AlterOperation.SET
            level = LEVELS[change.value or ""] if is_set else logging.NOTSET
            loggers[change.name].setLevel(level)

    def _loggers(self) -> dict[str, logging.Logger]:
        ours = {OURS: self._manager.getLogger(OURS)}
        for name in sorted(self._manager.loggerDict):
            found = self._manager.loggerDict[name]
            if isinstance(found, logging.Logger) and name.startswith(f"{OURS}."):
                ours[name] = found
        return {ROOT: self._manager.root, **ours}


def _name_of(found: logging.Logger) -> str:
    """Return the name of the most detailed of Kafka's log levels at which a logger logs."""
    level = found.getEffectiveLevel()
    return next((name for name, number in LEVELS.items() if level <= number), "FATAL")


def _operation(number: int) -> str:
    known = {operation.value: operation.name for operation in AlterOperation}
    return known.get(number, f"Unknown operation type {number}:")
