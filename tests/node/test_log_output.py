"""Format of a node's log lines, and the handling of lines that cannot be written."""

import json
import logging
import threading
from pathlib import Path

import pytest

from ottla.model.errors import ConfigError
from ottla.model.log_events import event, event_of
from ottla.model.settings.logs import LogOutputConfig
from ottla.node.log_output_driver import JsonFormatter, LogQueue, TextFormatter, _file_output


def line_of(message: str, **extra: object) -> logging.LogRecord:
    logger = logging.getLogger("ottla.broker")
    return logger.makeRecord(logger.name, logging.INFO, "", 0, message, (), None, extra=extra)


class HeldOutput(logging.Handler):
    """An output that writes nothing before it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []
        self.entered = threading.Event()
        self.let_go = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.entered.set()
        self.let_go.wait()
        self.messages.append(record.getMessage())


def test_a_line_has_its_node_and_its_event() -> None:
    record = line_of("broker 2 is fenced", **event("broker.fenced", broker=2))
    text = TextFormatter("broker 1").format(record)
    assert text.endswith("INFO [broker 1] broker.fenced ottla.broker: broker 2 is fenced")


def test_a_name_with_a_line_end_forges_no_second_line() -> None:
    text = TextFormatter("broker 1").format(line_of("client x\n2026 INFO forged \x1b[2J"))
    assert "\n" not in text
    assert "\\x0a" in text
    assert "\x1b" not in text


def test_json_is_one_object_for_each_line() -> None:
    record = line_of("two\nlines", **event("broker.fenced", broker=2))
    text = JsonFormatter("broker 1").format(record)
    assert "\n" not in text
    found = json.loads(text)
    assert found.pop("ts").endswith("Z")
    assert found == {
        "level": "INFO",
        "node": "broker 1",
        "logger": "ottla.broker",
        "event": "broker.fenced",
        "message": "two\nlines",
        "fields": {"broker": 2},
    }


def test_lines_that_cannot_be_written_are_lost_and_counted() -> None:
    output = HeldOutput()
    lines = LogQueue([output], lines_max=2)
    lines.start()
    lines.emit(line_of("first"))
    output.entered.wait()
    for number in range(5):
        lines.emit(line_of(f"more {number}"))
    assert lines.dropped_count == 3
    output.let_go.set()
    lines.stop()
    assert output.messages == [
        "first",
        "3 lines were lost: they came too fast, or could not be written",
        "more 0",
        "more 1",
    ]


class FullDisk(logging.Handler):
    """An output that does not take some lines, as a file on a full disk."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if record.getMessage().startswith("lost"):
                raise OSError(28, "No space left on device")
            self.messages.append(record.getMessage())
        except OSError:
            self.handleError(record)


def test_lines_lost_on_a_full_disk_are_counted_and_reported_after_it_has_room(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = FullDisk()
    lines = LogQueue([output])
    lines.start()
    for message in ("first", "lost 1", "lost 2", "there is space again", "last"):
        lines.emit(line_of(message))
    lines.stop()
    assert lines.unwritten_count == 2
    assert output.messages == [
        "first",
        "there is space again",
        "2 lines were lost: they came too fast, or could not be written",
        "last",
    ]
    assert capsys.readouterr().err == "", "a full disk prints no traceback for each line"


def test_files_are_bounded_in_size_and_number(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "broker-1.log"
    config = LogOutputConfig(file=str(file), file_bytes_max=2_000, file_count_max=2)
    output = _file_output(config, str(file))
    for number in range(200):
        output.handle(line_of(f"{number} " + "x" * 100))
    output.close()
    found = sorted(file.parent.iterdir())
    assert [one.name for one in found] == ["broker-1.log", "broker-1.log.1", "broker-1.log.2"]
    assert all(one.stat().st_size <= 2_000 for one in found)


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigError, match=r"log\.file"):
        _file_output(LogOutputConfig(), str(tmp_path / "taken" / "x.log"))


def test_a_call_with_wrong_arguments_is_a_line_that_says_so() -> None:
    output = HeldOutput()
    output.let_go.set()
    lines = LogQueue([output])
    lines.start()
    record = line_of("%d partitions")
    record.args = ("many",)
    lines.emit(record)
    lines.stop()
    assert output.messages == ["%d partitions (this line's arguments do not fit: ('many',))"]


def test_a_line_without_an_event_has_that_of_its_logger() -> None:
    record = line_of("moves")
    record.name = "ottla.storage.manager.log_moves_driver"
    assert event_of(record) == "log.move"
    record.name = "ottla.storage.anything"
    assert event_of(record) == "log.storage"
    record.name = "trio"
    assert event_of(record) == "log.line"


def test_an_end_at_once_writes_the_lines_that_wait() -> None:
    """The second signal calls `logging.shutdown`, which closes every handler."""
    output = HeldOutput()
    lines = LogQueue([output])
    lines.start()
    for number in range(3):
        lines.emit(line_of(f"line {number}"))
    output.let_go.set()
    lines.close()
    assert output.messages == ["line 0", "line 1", "line 2"]
