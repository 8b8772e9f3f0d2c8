"""`ottla share redrive`: moves dead letters of a share group back to the partitions of their
records."""

import argparse
import time
from collections.abc import Mapping

from ottla.cli.common import bootstrap_of, counted, print_json
from ottla.cli.confirmation import confirm_in_loop
from ottla.cli.groups.reset_plans import parse_places
from ottla.cli.tables import print_table
from ottla.cli.terminal import draw, is_watched, note, wipe
from ottla.client.admin import Admin
from ottla.client.producer import open_producer
from ottla.insight.changes.redrive_driver import (
    Letters,
    RedriveChoice,
    Tally,
    count_letters,
    letters_of,
    move_letters,
)
from ottla.insight.changes.redrive_letters import LeftReason, LetterCause
from ottla.model.points_in_time import parse_time

COLUMNS = ("TOPIC", "PARTITION", "RECORDS", "REJECTED", "EXHAUSTED")


async def redrive(admin: Admin, arguments: argparse.Namespace) -> int:
    """Show the dead letters of a share group that can be moved back to their partitions, and move
    them if the user confirms. Returns the exit code."""
    letters = await letters_of(admin, _choice(arguments))
    group, topic = letters.filter.group_id, letters.filter.letter_topic
    if not arguments.yes:
        tally = await count_letters(admin, letters)
        _show(arguments, letters, tally)
        question = f"move {counted(tally.moved_count, 'dead letter')} of share group {group!r}?"
        if not tally.moved_count or not await confirm_in_loop(arguments, question):
            return 0
    async with open_producer(bootstrap_of(arguments), letters.producer_config) as producer:
        try:
            tally = await move_letters(admin, letters, producer, _draw, note)
        finally:
            if is_watched():
                wipe()
    if arguments.yes:
        _show(arguments, letters, tally)
    note(f"{counted(tally.moved_count, 'dead letter')} of {topic} moved")
    return 0 if not tally.left[LeftReason.REFUSED] else 1


def _choice(arguments: argparse.Namespace) -> RedriveChoice:
    """Return the selection of dead letters that the command's options describe."""
    now_ms = time.time_ns() // 1_000_000
    return RedriveChoice(
        group=arguments.group,
        dead_letter_topic=arguments.dead_letter_topic or "",
        cause=None if arguments.cause is None else LetterCause(arguments.cause),
        places=_places(arguments.topic),
        since_ms=_time(arguments, "since", now_ms),
        until_ms=_time(arguments, "until", now_ms),
        limit=arguments.limit,
        redrives_max=arguments.redrives_max,
        progress_topic=arguments.progress_topic,
    )


def _places(texts: list[str] | None) -> dict[str, frozenset[int] | None] | None:
    if not texts:
        return None
    found: dict[str, frozenset[int] | None] = {}
    for topic, partitions in (parse_places("--topic", text) for text in texts):
        before = found.get(topic, frozenset())
        if partitions is None or before is None:
            found[topic] = None
        else:
            found[topic] = before | frozenset(partitions)
    return found


def _time(arguments: argparse.Namespace, name: str, now_ms: int) -> int | None:
    text = getattr(arguments, name)
    return None if text is None else parse_time(f"--{name}", text, now_ms)


def _draw(text: str) -> None:
    if is_watched():
        draw(text)


def _show(arguments: argparse.Namespace, letters: Letters, tally: Tally) -> None:
    left: Mapping[LeftReason, int] = tally.left
    if arguments.format == "json":
        print_json(
            {
                "group": letters.filter.group_id,
                "dead_letter_topic": letters.filter.letter_topic,
                "moved": [
                    dict(zip(map(str.lower, COLUMNS), row, strict=True)) for row in tally.rows()
                ],
                "left": {reason.name.lower(): count for reason, count in sorted(left.items())},
            }
        )
        return
    print_table(COLUMNS, tally.rows())
    for reason, count in sorted(left.items()):
        note(f"{counted(count, 'record')} left: {reason}")
