"""`ottla group offset-delete`: deletes a group's committed offsets in topics or in single
partitions."""

import argparse

from ottla.cli.common import counted
from ottla.cli.confirmation import CONFIRMATION, confirm_in_loop
from ottla.cli.groups.reset_plans import parse_places
from ottla.cli.options import Declared, option
from ottla.cli.outcomes import show
from ottla.client.admin import Admin
from ottla.insight.facts.group_view import committed_offsets, of_group
from ottla.model.errors import ConfigError, ErrorCode, RefusedError, row_of
from ottla.model.ids import TopicPartition

COLUMNS = ("TOPIC", "PARTITION", "COMMITTED")

OFFSET_DELETE_OPTIONS: tuple[Declared, ...] = (
    option(
        "--topic TOPIC[:PARTITION,…] ...",
        "topic, or single partitions of it; may be repeated",
        required=True,
    ),
    CONFIRMATION,
)


async def offset_delete(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla group offset-delete`: show the committed offsets that will be deleted, and delete them
    if the user confirms. Reports each refusal. Returns the exit code."""
    group = arguments.group
    committed = await committed_offsets(admin, group)
    wanted = _wanted(arguments.topic, group, committed)
    rows = [(*at, committed.get(at)) for at in wanted]
    if not arguments.yes:
        show(arguments, COLUMNS, rows, command="group")
        question = f"delete {counted(len(wanted), 'committed offset')} of group {group!r}?"
        if not await confirm_in_loop(arguments, question):
            return 0
    refusals = await _delete(admin, group, wanted)
    refused = {at for at, _ in refusals}
    left = [row for at, row in zip(wanted, rows, strict=True) if at not in refused]
    if arguments.yes:
        show(arguments, COLUMNS, left, [one for _, one in refusals], command="group")
    elif refusals:
        raise refusals[0][1]
    return 0


def _wanted(
    texts: list[str], group: str, committed: dict[TopicPartition, int]
) -> list[TopicPartition]:
    found: set[TopicPartition] = set()
    for topic, indexes in (parse_places("--topic", text) for text in texts):
        if indexes is not None:
            found |= {TopicPartition(topic, index) for index in indexes}
        elif of_topic := {at for at in committed if at.topic == topic}:
            found |= of_topic
        else:
            raise ConfigError("--topic", f"is {topic!r}, of which group {group!r} has no offsets")
    return sorted(found)


async def _delete(
    admin: Admin, group: str, wanted: list[TopicPartition]
) -> list[tuple[TopicPartition, RefusedError]]:
    try:
        codes = await admin.delete_group_offsets(group, wanted)
    except RefusedError as refusal:
        raise of_group(group, refusal) from None
    return [
        (at, RefusedError(code, f"{at}: {row_of(code).meaning}"))
        for at, code in sorted(codes.items())
        if code is not ErrorCode.NONE
    ]
