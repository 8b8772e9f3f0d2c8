"""The log lines of a node's process: their form, and the thread that writes them.

The loop puts a line into a bounded queue and goes on; a slow disk or terminal costs lines, which
are counted, and never time.
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
"""Lines that wait to be written; more cost memory, fewer are lost in a burst of errors."""
STOP_PATIENCE_S = 2.0
"""How long the end of a process waits for a disk or terminal that does not take its last lines."""

_LOGGER = logging.getLogger(__name__)


class VisibleFormatter(logging.Formatter):
    """Log lines in which nothing steers a terminal: they name what clients sent."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line; a line end in it is an escape, so that nothing forges another line."""
        return visible(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and the traceback's, with control characters as escapes."""
        return visible(super().format(record), keeps_layout=True)


class TextFormatter(VisibleFormatter):
    """Lines to read: time, level, node, event, logger, message."""

    def __init__(self, node: str) -> None:
        line = "%(asctime)s %(levelname)s [%(node)s] %(event)s %(name)s: %(message)s"
        super().__init__(line)
        self._node = node

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line with its node and event."""
        record.node, record.event = self._node, event_of(record)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """One JSON object for each line."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """Return the object: ts, level, node, logger, event, message, fields, and any traceback."""
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
    """The lines that wait for the thread that writes them; owns queue and thread."""

    def __init__(self, outputs: list[logging.Handler], lines_max: int = LINES_MAX) -> None:
        super().__init__()
        self.dropped_count = 0
        """Lines since the start that found the queue full."""
        self.unwritten_count = 0
        """Lines since the start that an output did not take, such as a file on a full disk."""
        self._told_count = 0
        self._outputs = outputs
        # The way out that `logging` has for a write that failed.
        for output in outputs:
            output.handleError = self._count_unwritten  # type: ignore[method-assign]
        self._lines: queue.Queue[logging.LogRecord | None] = queue.Queue(lines_max)
        self._thread = threading.Thread(target=self._write, name="log output", daemon=True)

    def start(self) -> None:
        """Write lines from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, for a bounded time."""
        try:
            self._lines.put(None, timeout=STOP_PATIENCE_S)
        except queue.Full:
            return
        self._thread.join(STOP_PATIENCE_S)

    def close(self) -> None:
        """Write what waits; `logging.shutdown` calls it."""
        if self._thread.is_alive():
            self.stop()
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line, or count it as lost."""
        try:
            line = copy.copy(record)
            # Arguments may change before the thread reads them.
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
            lost = self.dropped_count + self.unwritten_count - self._told_count
            # While lines fail, a line about them would fail too.
            if lost and self.unwritten_count == unwritten_before:
                self._told_count += lost
                self._put_out(_loss_line(lost))

    def _count_unwritten(self, record: logging.LogRecord) -> None:
        """Count a line; `logging` calls it in the thread that writes, in place of a traceback."""
        self.unwritten_count += 1

    def _put_out(self, line: logging.LogRecord) -> None:
        for output in self._outputs:
            if line.levelno >= output.level:
                output.handle(line)


def log_to_outputs(config: LogOutputConfig, node: str) -> LogQueue:
    """Log to the file of the settings, and to standard error what is not there alone.

    Raises ConfigError if the file cannot be written.
    """
    logging.addLevelName(LEVELS["TRACE"], "TRACE")
    on_terminal = logging.StreamHandler(sys.stderr)
    outputs: list[logging.Handler] = [on_terminal]
    if config.file is not None:
        on_terminal.setLevel(logging.WARNING)
        # The command itself ends with that sentence.
        on_terminal.addFilter(lambda line: event_of(line) != "node.failed")
        outputs.append(_file_output(config, config.file))
    for output in outputs:
        output.setFormatter(JsonFormatter(node) if config.format == "json" else TextFormatter(node))
    lines = LogQueue(outputs)
    # Libraries say at INFO what only their authors understand.
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
    """Return a line's message; a call with wrong arguments is a line too, and says so."""
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
