"""Every `ottla …` command that a page names exists."""

import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import pytest

from ottla.cli.main import COMMANDS
from ottla.cli.verbs import Verb

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(ROOT.glob("*/README.md")),
]
NAMED = re.compile(r"(?:^[ \t>$]*|`|'|bin/|\bsudo )ottla((?: +[a-z][\w-]*(?:\|[\w-]+)*)+)", re.M)
"""A command in a code span, in quotes, or at the start of a line; `list|describe` names two."""


def commands_in(text: str) -> list[list[str]]:
    """Return the words of each command that a text names."""
    return [found.split() for found in NAMED.findall(text)]


def unknown_word(words: list[str]) -> str | None:
    """Return the first word that should be a command or verb and is none, or None."""
    words = words[words[0] == "help" :]
    for name in words[0].split("|") if words else ():
        if name not in COMMANDS:
            return name
    if not words:
        return None
    command = COMMANDS[words[0].split("|")[0]]
    for path in filter(None, (command.module, command.verbs_module)):
        verbs: tuple[Verb, ...] = getattr(import_module(path), "VERBS", None) or ()
        return _unknown_verb(words[1:], verbs)
    return None


def _unknown_verb(words: list[str], verbs: Iterable[Verb]) -> str | None:
    known = {one.name: one for one in verbs}
    if not known or not words:
        return None
    for name in words[0].split("|"):
        if name not in known:
            return name
    return _unknown_verb(words[1:], known[words[0].split("|")[0]].verbs)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_command_in_a_page_exists(page: Path) -> None:
    for words in commands_in(page.read_text("utf-8")):
        unknown = unknown_word(words)
        assert unknown is None, f"{page.name}: ottla {' '.join(words)}: there is no {unknown!r}"


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("metrics in `ottla node describe`", "node"),
        ("    ottla quorum add|replase 3", "replase"),
        ("`ottla help topic create`, `ottla help` and `ottla topic create orders`", None),
    ],
)
def test_an_unknown_command_is_found(text: str, unknown: str | None) -> None:
    assert next(filter(None, map(unknown_word, commands_in(text))), None) == unknown
