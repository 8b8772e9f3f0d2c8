"""Settings of the log messages of a process: level, format and destination."""

import logging
from collections.abc import Mapping

from ottla.model.settings.declare import SettingKind, setting
from ottla.model.values import frozen

LEVELS: Mapping[str, int] = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Kafka's log level names, each with the number of Python's corresponding level."""


def parse_levels(text: str) -> tuple[tuple[str, str], ...]:
    """a list of LOGGER:LEVEL, levels TRACE, DEBUG, INFO, WARN, ERROR or FATAL.

    Returns the level of each logger. Raises ValueError if the text is malformed. Error messages
    quote the first line as the description of valid texts.
    """
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, level = part.partition(":")
        if not colon or not name or level not in LEVELS:
            raise ValueError(part)
        found.append((name, level))
    return tuple(found)


@frozen(kw_only=True)
class LogOutputConfig:
    """Settings of a node's log messages: level, format and destination."""

    level: str = setting(
        "INFO",
        key="log.level",
        one_of=tuple(LEVELS),
        doc="Ottla's own: lowest level that is logged.",
    )
    levels: tuple[tuple[str, str], ...] = setting(
        (),
        key="log.levels",
        parse=parse_levels,
        text="",
        doc="Ottla's own: levels of single loggers, such as ottla.broker:DEBUG,ottla.node:WARN.",
    )
    format: str = setting(
        "text",
        key="log.format",
        one_of=("text", "json"),
        doc="Ottla's own: format of log messages: readable lines, or one JSON object per line.",
    )
    file: str | None = setting(
        None,
        key="log.file",
        kind=SettingKind.STRING,
        doc="Ottla's own: log file; standard error then gets only warnings and errors. By default "
        "standard error gets all messages.",
    )
    file_bytes_max: int = setting(
        10 << 20,
        key="log.file.max.bytes",
        at_least=1 << 10,
        doc="Ottla's own: size at which log.file is renamed to log.file.1 and started again.",
    )
    file_count_max: int = setting(
        5,
        key="log.file.max.count",
        at_least=1,
        at_most=1_000,
        doc="Ottla's own: number of renamed files that are kept beside log.file.",
    )
