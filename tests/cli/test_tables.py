"""Tables of all commands: headers of one form, cells of one form, and no line above 120 columns.

The walk reads the source of each command, finds every call of the printer, and prints a table with
these headers and extreme cells.
"""

import ast
import json
import re
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ottla.cli
from ottla.cli.logs.log_view import BATCH_COLUMNS
from ottla.cli.outcomes import show
from ottla.cli.tables import (
    HEADER,
    ByteCount,
    Milliseconds,
    Moment,
    header_of,
    output_width,
    print_table,
    table,
    table_lines,
)
from ottla.model.text_tables import TABLE_WIDTH

FOLDER = Path(next(iter(ottla.cli.__path__)))
INT64_MAX = 2**63 - 1
NAME = "orders.of-the_year." * 13 + "xx"
assert len(NAME) == 249
EXTREMES: Sequence[object] = (
    NAME,
    INT64_MAX,
    list(range(1_000, 1_100)),
    ByteCount(INT64_MAX),
    Milliseconds(INT64_MAX),
    Moment(253_402_300_799_999),
    Moment(INT64_MAX),
    1e18,
    "it has failed: the segment 00000000000000000042.log is damaged at position 12; " * 4,
    None,
)
PRINTERS = {
    "print_table": ("ottla.cli.tables", 0),
    "table": ("ottla.cli.tables", 0),
    "note_table": ("ottla.cli.tables", 0),
    "show": ("ottla.cli.outcomes", 1),
    "_show": ("ottla.cli.groups.group", 1),
}
"""Functions that print tables: their module, and the position of the headers as an argument."""

OF_RESULTS = {
    "lab/jepsen.py": "runs[0]",
    "lab/world_fuzz.py": "names",
    "logs/log_view.py": "columns",
}
"""Headers that are names of fields, by module: their form is that of `header_of`."""

BY_HAND = {
    "main.py": "the overview of commands",
    "cluster/moves/move_bars.py": "progress bars",
    "cluster/voters/quorum_log.py": "lines that are printed as changes arrive",
    "lab/jepsen_view.py": "a progress bar",
    "lab/world_soak.py": "a clock",
}
"""Modules that align text themselves, with the reason."""


class PrintedTable(NamedTuple):
    """One call of the printer in the source."""

    place: str
    headers: tuple[str, ...]
    are_data: bool


def printed_tables() -> Iterator[PrintedTable]:
    """Yield the tables that the modules of the command print."""
    yield PrintedTable("logs/log_view.py:batches", BATCH_COLUMNS, are_data=False)
    for path in sorted(FOLDER.rglob("*.py")):
        name = path.relative_to(FOLDER).as_posix()
        if name in ("tables.py", "outcomes.py", "__main__.py"):
            continue
        tree = ast.parse(path.read_text())
        if not PRINTERS.keys() & {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}:
            continue
        module = import_module(f"ottla.cli.{name.removesuffix('.py').replace('/', '.')}")
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from tables_of(function, name, vars(module))


def tables_of(
    function: ast.FunctionDef | ast.AsyncFunctionDef, module: str, scope: dict[str, Any]
) -> Iterator[PrintedTable]:
    """Yield the tables that a function prints."""
    whole = scope | constants_of(function, scope)
    parameters = {one.arg for one in function.args.args}
    for call in ast.walk(function):
        if not (isinstance(call, ast.Call) and is_printer(call, scope)):
            continue
        headers = call.args[PRINTERS[ast.unparse(call.func)][1]]
        if isinstance(headers, ast.Name) and headers.id in parameters:
            continue  # a printer by another name, whose callers are walked
        are_data = any(one.arg == "are_headers_data" for one in call.keywords)
        choices = [headers]
        if isinstance(headers, ast.IfExp):
            choices = [headers.body, headers.orelse]
        for node in choices:
            found: tuple[str, ...]
            if are_data:
                found = ("KEY", NAME, NAME)
            elif OF_RESULTS.get(module, "?") in ast.unparse(node):
                found = tuple(map(header_of, ("run", "ops_per_s", "slowest_ms")))
            else:
                found = tuple(evaluated(node, whole))
            yield PrintedTable(f"{module}:{call.lineno}", found, are_data)


def is_printer(call: ast.Call, scope: dict[str, Any]) -> bool:
    """Return whether a call is one of a printer, with headers and rows."""
    if not (isinstance(call.func, ast.Name) and call.func.id in PRINTERS and len(call.args) > 1):
        return False
    found = scope.get(call.func.id)
    return getattr(found, "__module__", "") == PRINTERS[call.func.id][0]


def constants_of(function: ast.AST, scope: dict[str, Any]) -> dict[str, Any]:
    """Return the constants that a function assigns or imports."""
    found: dict[str, Any] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.ImportFrom):
            with suppress(ImportError):
                exec(compile(ast.Module([node], []), "walk", "exec"), found)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple | ast.List):
            if any(isinstance(one, ast.Call | ast.Await) for one in ast.walk(node.value)):
                continue
            with suppress(NameError, TypeError, AttributeError, KeyError, IndexError):
                found[ast.unparse(node.targets[0])] = evaluated(node.value, scope | found)
    return found


def evaluated(node: ast.expr, scope: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "walk", "eval"), dict(scope))


TABLES = list(printed_tables())


def test_the_walk_finds_the_tables() -> None:
    modules = {one.place.partition(":")[0] for one in TABLES}
    assert len(TABLES) > 50
    assert {"cluster/status.py", "cluster/up.py", "logs/log_view.py", "topics/config.py"} <= modules


@pytest.mark.parametrize("printed", TABLES, ids=lambda one: one.place)
def test_a_table_with_extreme_cells_fits_and_loses_nothing(
    printed: PrintedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    headers = printed.headers
    assert headers
    if not printed.are_data:
        assert [header for header in headers if not HEADER.fullmatch(header)] == []
    for first in range(len(EXTREMES)):
        row = [EXTREMES[(first + at) % len(EXTREMES)] for at in range(len(headers))]
        for rows in ([row], [row, ["t", 0, *row[2:]][: len(headers)]]):
            found = table_lines(headers, rows, are_headers_data=printed.are_data)
            lines = [*found.header, *found.rows]
            assert max(map(len, lines)) <= TABLE_WIDTH, "\n".join(lines)
    for cell in EXTREMES:
        alone = table_lines(headers, [[cell] * len(headers)], are_headers_data=printed.are_data)
        assert max(map(len, [*alone.header, *alone.rows])) <= TABLE_WIDTH
    narrow = table_lines(headers, [[NAME] * len(headers)], are_headers_data=printed.are_data)
    assert len(re.sub(r"\s", "", "".join(narrow.rows))) == 249 * len(headers)


def test_only_the_printer_aligns() -> None:
    found = set()
    for path in FOLDER.rglob("*.py"):
        name = path.relative_to(FOLDER).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            is_call = isinstance(node, ast.Attribute) and node.attr in ("rjust", "center")
            spec = node.format_spec if isinstance(node, ast.FormattedValue) else None
            if is_call or (spec is not None and re.search(r"[<>^]", ast.unparse(spec))):
                found.add(name)
    assert found <= BY_HAND.keys(), found - BY_HAND.keys()


def test_cells_of_a_kind_have_one_form(capsys: pytest.CaptureFixture[str]) -> None:
    headers = ("FREE", "TOOK", "SEEN", "LAG")
    row = (ByteCount(1_536), Milliseconds(61_500), Moment(1_785_499_200_007), None)
    assert table(headers, [row]).splitlines()[1].split("  ")[-1] == "-"
    assert "1.5 KiB" in table(headers, [row])
    assert "61.5 s" in table(headers, [row])
    assert "2026-07-31T12:00:00.007Z" in table(headers, [row])
    assert table(("FUTURE", "FULL"), [(True, False)]).splitlines()[1] == "yes     no"
    unknown = (ByteCount(-1), Milliseconds(-1), Moment(-1), None)
    assert table(headers, [unknown]).splitlines()[1].split() == ["-"] * 4

    show(Namespace(format="json"), headers, [row])
    assert json.loads(capsys.readouterr().out) == [
        {"free": 1_536, "took": 61_500, "seen": 1_785_499_200_007, "lag": None}
    ]


def test_a_column_of_numbers_with_unknown_ones_is_aligned_to_the_right() -> None:
    assert table(("LAG",), [(None,), (1_000,)]) == " LAG\n   -\n1000"


def test_a_header_in_another_form_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="Lag"):
        table(("TOPIC", "Lag"), [])
    assert header_of("free_bytes") == "FREE-BYTES"
    assert header_of("simulated s/s") == "SIMULATED-S/S"


def test_headers_are_bold_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    print_table(("TOPIC", "LAG"), [("t", 1)])
    assert capsys.readouterr().out == "TOPIC  LAG\nt        1\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_table(("TOPIC", "LAG"), [("t", 1)])
    assert capsys.readouterr().out == "\033[1mTOPIC  LAG\033[0m\nt        1\n"


def test_columns_in_the_environment_is_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, width in (("200", 200), ("7", 40), ("wide", TABLE_WIDTH), ("", TABLE_WIDTH)):
        monkeypatch.setenv("COLUMNS", text)
        assert output_width() == width


def test_a_command_in_a_cell_is_shown_as_it_can_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.cli.own_command.own_command", lambda: ".venv/bin/ottla")
    cells = [("a", "run 'ottla topic list'")]
    assert "'.venv/bin/ottla topic list'" in table(("TOPIC", "CURE"), cells)
