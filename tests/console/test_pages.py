"""The table of pages and the commands: each page and action has its command."""

import argparse
import inspect
import re
import string
from importlib import import_module

import pytest

from ottla.cli.main import COMMANDS
from ottla.cli.parser import Parser
from ottla.cli.verbs import declare
from ottla.console.command_lines import command_line
from ottla.console.page_types import SECTIONS, Action, Page, ViewFunction
from ottla.console.pages import PAGES
from ottla.console.static_files import FOLDER
from tests.console.browser.screens import LONG_ACTION, where

WITHOUT_COMMAND: dict[str, str] = {
    "long-action": "the page shows the command of its action",
    "long-action-cancel": "a terminal interrupts the command with Ctrl-C",
    "long-actions": "long actions run in the console",
    "explain": "it lists the questions, each with its command",
    "report": "a report is a folder of files",
    "report-file": "a report is a folder of files",
    "reports": "reports are folders of files",
}
"""Pages and actions without a command, each with the reason."""
TEMPLATES = FOLDER.parent / "templates"
OURS: tuple[Page | Action, ...] = (
    *PAGES,
    *(action for page in PAGES for action in page.actions),
)
VALUES = dict.fromkeys(("broker", "node", "offset", "partition", "total"), "1")


def parsed(words: list[str]) -> argparse.Namespace:
    """Parse a command line of `ottla` as `ottla` does."""
    assert words[0] == "ottla", words
    command = COMMANDS[words[1]]
    is_verb = words[2:3] != [] and words[2] in command.verbs
    parser = Parser(prog=f"ottla {words[1]}")
    declare(parser, import_module(command.verbs_module if is_verb else command.module))
    return parser.parse_args(words[2:])


@pytest.mark.parametrize("row", OURS, ids=lambda row: row.name)
def test_each_page_and_action_has_a_command_that_parses(row: Page | Action) -> None:
    name, command = row.name, row.command
    assert (not command) == (name in WITHOUT_COMMAND), name
    if command:
        parsed(command_line(command, VALUES).split())


def test_exceptions_are_pages() -> None:
    assert set(WITHOUT_COMMAND) <= {one.name for one in OURS}


def test_names_paths_and_keys_are_unique() -> None:
    lives = [live for page in PAGES for live in page.lives]
    paths = [page.path for page in PAGES] + [live.path for live in lives]
    for values in (
        [one.name for one in OURS],
        [one.name for one in lives],
        paths,
        [action.path for page in PAGES for action in page.actions],
        [page.key for page in PAGES if page.key],
    ):
        assert len(values) == len(set(values)), values
    shapes = [re.sub(r"\{\w+\}", "{}", path) for path in paths]
    assert len(shapes) == len(set(shapes)), "two paths match the same addresses"


def returns_sheets(view: ViewFunction) -> bool:
    """Return whether the views of a module need no templates of their own."""
    return hasattr(inspect.getmodule(getattr(view, "func", view)), "sheet_view")


@pytest.mark.parametrize("row", PAGES, ids=lambda row: row.name)
def test_a_page_is_complete(row: Page) -> None:
    assert (TEMPLATES / f"{row.name}.html").exists() or returns_sheets(row.view)
    assert row.section in ("", *SECTIONS)
    if row.name != LONG_ACTION:
        # The tests in a browser open the page with values of `browser/screens.py`.
        assert "{" not in where(row)
    assert row.key == "" or (len(row.key) == 1 and row.key in string.ascii_lowercase)
    if row.section:
        assert "{" not in row.path, "a page of the navigation needs no value"
    assert row.key == "" or row.section, "a key opens a page of the navigation"
    for action in row.actions:
        assert action.confirms == "" or f"{{{action.confirms}}}" in action.path
    for live in row.lives:
        has_template = (TEMPLATES / "live" / f"{live.name}.html").exists()
        assert has_template or returns_sheets(row.view)
        assert live.path.startswith("/live/")
