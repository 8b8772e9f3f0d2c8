"""Whatever a command prints: names of strangers steer no terminal."""

import ast
import io
import json
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ottla.cli
from ottla.cli import terminal
from ottla.cli.common import print_json
from ottla.cli.main import guarded, run
from ottla.cli.records.record_printer import Printer
from ottla.cli.tables import print_table, table
from ottla.client import ConsumerRecord
from ottla.client.fetch.position_reads import ReadPosition
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_EPOCH, Offset
from ottla.node.log_output_driver import VisibleFormatter
from ottla.wire.batch import TimestampType

HOSTILE = "g\x1b]0;owned\x07\x9b31m\u202eevil\nBROKER  down"
SHOWN = "g\\x1b]0;owned\\x07\\x9b31m\\u202eevil\\x0aBROKER  down"


def test_a_tables_cells_are_safe_and_line_up(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("GROUP", "LAG"), [(HOSTILE, 1), (["a", HOSTILE], 7), ("g", 22)])

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[1].startswith(SHOWN)
    assert lines[2].startswith(f"a,{SHOWN}")
    assert len({len(line) for line in lines[1:]}) == 1
    assert table(("X",), [("\x1b",)]) == "X\n\\x1b"


def test_json_is_safe_and_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({HOSTILE: "ü"})

    printed = capsys.readouterr().out
    assert json.loads(printed) == {HOSTILE: "ü"}
    assert "ü" in printed
    assert not set(printed) & set("\x1b\x07\x9b\u202e")


def test_errors_and_notes_are_safe(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_: Any) -> int:
        raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {HOSTILE}")

    assert guarded("group", fail, SimpleNamespace()) == 1  # type: ignore[arg-type]
    assert run([f"\x1b[2J{HOSTILE}"]) == 1
    assert run(["group", f"\x1b[2J{HOSTILE}"]) == 1
    terminal.note(HOSTILE)

    printed = capsys.readouterr().err
    assert SHOWN in printed.splitlines()[0]
    assert not set(printed) & set("\x1b\x07\x9b\u202e")


def test_progress_is_drawn_over_itself_and_steered_by_us_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal.draw(HOSTILE)
    terminal.wipe()
    terminal.draw_lines([HOSTILE], line_count_before=2)

    assert capsys.readouterr().err == (f"\r\033[K{SHOWN}\r\033[K\033[2A\r\033[K{SHOWN}\n\033[J")


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_records_bytes_go_out_as_they_are_but_to_a_terminal(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Out(io.TextIOWrapper):
        def isatty(self) -> bool:
            return is_terminal

    out = Out(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", out)
    printer = Printer(
        SimpleNamespace(json=False, key_delimiter=None, format_string=r"%k %h %s\n")  # type: ignore[arg-type]
    )
    record = ConsumerRecord(
        topic="t",
        partition=0,
        offset=Offset(0),
        timestamp_ms=0,
        key=b"\x1bk",
        value=b"a\tb\n\xff\x1b[2J",
        headers=(("\x9b", b"\x07"),),
        leader_epoch=NO_EPOCH,
        timestamp_type=TimestampType.CREATE_TIME,
    )
    printer.show(ReadPosition("t", 0, 0, None), record)

    raw, shown = (
        b"\x1bk \xc2\x9b=\x07 a\tb\n\xff\x1b[2J\n",
        b"\\x1bk \\x9b=\\x07 a\tb\n\\xff\\x1b[2J\n",
    )
    assert out.buffer.getvalue() == (shown if is_terminal else raw)  # type: ignore[attr-defined]


def test_a_log_line_is_safe() -> None:
    record = logging.LogRecord("ottla", logging.INFO, __file__, 1, "client %s", ("\x1b[2J",), None)

    assert VisibleFormatter("%(message)s").format(record) == "client \\x1b[2J"


def test_one_module_prints() -> None:
    folder = Path(next(iter(ottla.cli.__path__)))
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.py")}
    assert "records/consume.py" in paths
    # A record's bytes go out as they are, but to a terminal (above).
    writers = {"terminal.py", "records/record_printer.py"}
    for name, path in paths.items():
        for node in ast.walk(ast.parse(path.read_text())):
            is_print = isinstance(node, ast.Name) and node.id == "print"
            is_write = (
                isinstance(node, ast.Attribute)
                and node.attr in ("write", "writelines", "buffer")
                and ast.unparse(node.value) in ("sys.stdout", "sys.stderr")
            )
            if is_print or is_write:
                assert name in writers, f"{name}: {ast.unparse(node)} prints"


@pytest.mark.parametrize(
    ("environment", "is_terminal", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_only_terminals_get_colours_and_the_environment_decides_otherwise(
    environment: dict[str, str],
    is_terminal: bool,
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = SimpleNamespace(isatty=lambda: is_terminal)

    assert terminal.is_coloured(stream) is expected  # type: ignore[arg-type]


def test_lines_are_coloured_by_their_beginnings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    colours = {"healthy": terminal.Colour.GREEN}
    terminal.say_block("healthy\nunhealthy", colours=colours)
    monkeypatch.setenv("FORCE_COLOR", "1")
    terminal.say_block(f"healthy\n{HOSTILE.partition(chr(10))[0]}", colours=colours)
    terminal.complain("ottla topic: no")
    terminal.complain(HOSTILE)

    printed = capsys.readouterr()
    assert printed.out.startswith("healthy\nunhealthy\n\033[32mhealthy\033[0m\ng\\x1b]0;owned")
    assert printed.err.startswith("\033[31mottla topic\033[0m: no\n")
    assert SHOWN in printed.err
