"""`ottla explain`: shows why a client is denied, throttled or behind, and why partitions are not
served. Its verbs are made from the table of questions in `ottla.insight.answers`."""

import argparse
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from ottla.cli.common import counted, print_json
from ottla.cli.options import Option, option
from ottla.cli.tables import ByteCount, header_of, table_lines
from ottla.cli.terminal import say
from ottla.cli.verbs import Verb, admin_verb
from ottla.insight.answers import ANSWERS, Answer
from ottla.model.visible_text import visible

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.insight.explanation import Cause, Explanation, FactTable

EXIT_CODES = {"clear": 0, "caused": 2, "unknown": 4}
"""Exit code of `ottla explain` for each verdict of an explanation: clear, caused or unknown."""
METAVARS = {"topic": "TOPIC", "group": "GROUP", "broker": "ID", "host": "ADDRESS", "ip": "ADDRESS"}
"""Placeholder (metavar) of each option and argument in the help of `ottla explain`. Shell
completion offers names for TOPIC and GROUP."""


async def explain(asked: Answer, admin: "Admin", arguments: argparse.Namespace) -> int:
    """Print the answer to one question of `ottla explain` about the cluster. Returns the exit
    code."""
    from ottla.insight.answers_driver import answer

    values = {one.name: getattr(arguments, one.name) for one in asked.parameters}
    found = await answer(admin, asked.name, values)
    if arguments.format == "json":
        print_json(found.as_json)
    else:
        for line in lines_of(found, asked.finding):
            say(line)
    return EXIT_CODES[found.verdict.value]


def lines_of(found: "Explanation", finding: str = "cause") -> Iterator[str]:
    """Yield the lines of an explanation as text: the verdict, the causes in order, tables, notes
    and missing facts. `finding` is the noun for a cause, or empty if there are only tables. Control
    characters in names are escaped, because other users chose the names."""
    verdicts = {
        "caused": f": {counted(len(found.causes), finding)} found",
        "clear": f": no {finding} found" if finding else "",
        "unknown": f": no {finding} found, but facts are missing"
        if finding
        else ": facts are missing",
    }
    yield visible(f"{found.answer}, {found.subject}{verdicts[found.verdict.value]}")
    for number, cause in enumerate(found.causes, start=1):
        yield ""
        yield visible(f"{number}. {cause.summary}")
        yield from (f"   {line}" for line in _details(cause))
    for shown in found.tables:
        if shown.rows:
            yield from ("", *_table_lines(shown))
    if found.notes or found.unknown:
        yield ""
    yield from (visible(f"note: {note}") for note in found.notes)
    yield from (visible(f"unknown: {fact}") for fact in found.unknown)


def _details(cause: "Cause") -> Iterator[str]:
    for one in cause.evidence:
        value = "-" if one.value is None or one.value == "" else one.value
        yield visible(f"{one.label}: {value}")
    if cause.remedy:
        yield visible(f"remedy: {cause.remedy}")
    if cause.fix:
        yield visible(f"fix: {cause.fix}")
    if cause.more:
        yield visible(f"more: {cause.more}")


def _table_lines(shown: "FactTable") -> Iterator[str]:
    are_bytes = ["bytes" in name for name in shown.columns]
    rows = [
        [
            ByteCount(value) if is_size and isinstance(value, int) else value
            for value, is_size in zip(row, are_bytes, strict=True)
        ]
        for row in shown.rows
    ]
    found = table_lines([header_of(name) for name in shown.columns], rows)
    yield from (*found.header, *found.rows)


def _options(asked: Answer) -> Iterator[Option]:
    for one in asked.parameters:
        metavar = METAVARS.get(one.name, "" if one.choices else "NAME")
        name = one.name if one.is_required else f"--{one.name.replace('_', '-')}"
        choices = {"choices": one.choices} if one.choices else {}
        yield option(f"{name} {metavar}", one.meaning, **choices)


def _verb(asked: Answer) -> Verb:
    return admin_verb(asked.name, asked.summary, partial(explain, asked), *_options(asked))


VERBS = tuple(map(_verb, ANSWERS))
