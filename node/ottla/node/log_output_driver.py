"""Log output of a node's process: the format of lines, and the thread that writes them.

The event loop puts each line into a bounded queue and never waits for a slow disk or terminal.  If
the queue is full, lines are lost and counted.
"""

import atexit
import copy
import logging
import queue
import sys
import threading
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path

from ottla.model.errors import ConfigError
from ottla.model.log_events import event, event_of, fields_of
from ottla.model.settings.logs import LEVELS, LogOutputConfig
from ottla.model.visible_text import visible, visible_json

LINES_MAX = 10_000
"""Maximum number of log lines that wait to be written. A larger number uses more memory. With a
smaller one, more lines are lost in a burst of errors."""
STOP_PATIENCE_S = 2.0
"""Maximum seconds that an ending process waits for a disk or terminal to accept the last log
lines."""

_LOGGER = logging.getLogger(__name__)


class VisibleFormatter(logging.Formatter):
    """Formatter that escapes control characters, because clients choose some of the names in log
    lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the message line of a log record. Line breaks in the message are escaped, so that
        a name in it cannot forge another line."""
        return visible(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        """Return the message line of a log record and the lines of its traceback, with control
        characters escaped."""
        return visible(super().format(record), keeps_layout=True)


class TextFormatter(VisibleFormatter):
    """Formatter of log lines for people: time, level, node, event, logger, message."""

    def __init__(self, node: str) -> None:
        line = "%(asctime)s %(levelname)s [%(node)s] %(event)s %(name)s: %(message)s"
        super().__init__(line)
        self._node = node

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the message line of a log record, with the record's node and event."""
        record.node, record.event = self._node, event_of(record)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """Formatter of log records that writes one JSON object per line."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as a JSON object: ts, level, node, logger, event, message, fields,
        and the traceback of an exception."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "ts": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "node": self._node,
            "logger": record.name,
            "event": event_of(record),
            "message": record.getMessage(),
            "fields": {key: _plain(value) for key, value in fields_of(record).items()},
        }
        if record.exc_text:
            line["traceback"] = record.exc_text
        return visible_json(line)


class LogQueue(logging.Handler):
    """Bounded queue of log lines, and the thread that writes them."""

    def __init__(self, outputs: list[logging.Handler], lines_max: int = LINES_MAX) -> None:
        super().__init__()
        self.dropped_count = 0
        """Number of log lines since the start that were lost because the queue was full."""
        self.unwritten_count = 0
        """Number of log lines since the start that could not be written, such as to a file on a
        full disk."""
        self._reported_count = 0
        self._outputs = outputs
        # `logging` calls `handleError` after a failed write.
        for output in outputs:
            output.handleError = self._count_unwritten  # type: ignore[method-assign]
        self._lines: queue.Queue[logging.LogRecord | None] = queue.Queue(lines_max)
        self._thread = threading.Thread(target=self._write, name="log output", daemon=True)

    def start(self) -> None:
        """Start the thread that writes the queued log lines."""
        self._thread.start()

    def stop(self) -> None:
        """Write the queued log lines, for at most `STOP_PATIENCE_S` seconds, and stop the
        thread."""
        try:
            self._lines.put(None, timeout=STOP_PATIENCE_S)
        except queue.Full:
            return
        self._thread.join(STOP_PATIENCE_S)

    def close(self) -> None:
        """Write the queued log lines. `logging.shutdown` calls this method."""
        if self._thread.is_alive():
            self.stop()
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a log line, or count it as lost if the queue is full."""
        try:
            line = copy.copy(record)
            # The arguments may change before the writing thread formats them.
            line.msg, line.args = _message_of(record), None
            if record.exc_info and not record.exc_text:
                line.exc_text = logging.Formatter().formatException(record.exc_info)
            line.exc_info = None
            self._lines.put_nowait(line)
        except queue.Full:
            self.dropped_count += 1
        except Exception:
            self.handleError(record)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            unwritten_before = self.unwritten_count
            self._put_out(line)
            lost = self.dropped_count + self.unwritten_count - self._reported_count
            # While writes fail, a line about lost lines would also fail.
            if lost and self.unwritten_count == unwritten_before:
                self._reported_count += lost
                self._put_out(_loss_line(lost))

    def _count_unwritten(self, record: logging.LogRecord) -> None:
        """Count a log line that could not be written.

        `logging` calls this in the writing thread instead of printing a traceback.
        """
        self.unwritten_count += 1

    def _put_out(self, line: logging.LogRecord) -> None:
        for output in self._outputs:
            if line.levelno >= output.level:
                output.handle(line)


def log_to_outputs(config: LogOutputConfig, node: str) -> LogQueue:
    """Configure this process to log to the file in the settings, and to standard error. Returns the
    queue of log lines. If there is a file, standard error gets only warnings and errors.

    Raises ConfigError if the file cannot be written.
    """
    logging.addLevelName(LEVELS["TRACE"], "TRACE")
    on_terminal = logging.StreamHandler(sys.stderr)
    outputs: list[logging.Handler] = [on_terminal]
    if config.file is not None:
        on_terminal.setLevel(logging.WARNING)
        # The command itself prints that message when it ends.
        on_terminal.addFilter(lambda line: event_of(line) != "node.failed")
        outputs.append(_file_output(config, config.file))
    for output in outputs:
        output.setFormatter(JsonFormatter(node) if config.format == "json" else TextFormatter(node))
    lines = LogQueue(outputs)
    # INFO messages of libraries are useful only to their authors.
    logging.basicConfig(handlers=[lines], level=max(LEVELS[config.level], logging.WARNING))
    logging.getLogger("ottla").setLevel(LEVELS[config.level])
    for name, level in config.levels:
        logging.getLogger(None if name == "root" else name).setLevel(LEVELS[level])
    lines.start()
    atexit.register(lines.stop)
    return lines


def _file_output(config: LogOutputConfig, file: str) -> logging.Handler:
    try:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        return RotatingFileHandler(
            file,
            maxBytes=config.file_bytes_max,
            backupCount=config.file_count_max,
            encoding="utf-8",
        )
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError("log.file", f"{file} cannot be written: {reason}") from None


def _message_of(record: logging.LogRecord) -> str:
    """Return the message of a log record. If the arguments do not match the format string, the
    message contains the formatting error."""
    try:
        return record.getMessage()
    except (TypeError, ValueError):
        return f"{record.msg} (this line's arguments do not fit: {record.args!r})"


def _loss_line(count: int) -> logging.LogRecord:
    return _LOGGER.makeRecord(
        _LOGGER.name,
        logging.WARNING,
        "",
        0,
        "%d lines were lost: they came too fast, or could not be written",
        (count,),
        None,
        extra=event("log.dropped", count=count),
    )


def _plain(value: object) -> object:
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value)
