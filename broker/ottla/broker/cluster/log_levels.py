"""How much each logger of this process says: the resource BROKER_LOGGER (KIP-412).

Nothing is kept: a broker that starts again says what it said at first.  The names are our loggers',
and `root`; the levels are Kafka's.
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
    """The levels of the loggers of this process; owns none of them."""

    def __init__(self, manager: logging.Manager = logging.root.manager) -> None:
        self._manager = manager

    def levels(self) -> dict[str, str]:
        """Return the level in force of every logger by name, the root's first."""
        return {name: _name_of(found) for name, found in self._loggers().items()}

    def check(self, changes: Sequence[AlterableConfig]) -> None:
        """Refuse what no logger can be told; nothing is changed."""
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
        """Make changes that were checked."""
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
    """Return the highest of Kafka's levels that says no more than the logger does."""
    level = found.getEffectiveLevel()
    return next((name for name, number in LEVELS.items() if level <= number), "FATAL")


def _operation(number: int) -> str:
    known = {operation.value: operation.name for operation in AlterOperation}
    return known.get(number, f"Unknown operation type {number}:")
