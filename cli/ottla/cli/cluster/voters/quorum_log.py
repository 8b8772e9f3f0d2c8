"""`ottla quorum log`: prints changes of the metadata as text, as soon as they are committed."""

import argparse
from datetime import UTC, datetime

import trio

from ottla.cli.options import option
from ottla.cli.terminal import note, say, say_json
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.client.network.cluster import raise_for
from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.wire.messages.describe_metadata_changes_request import DescribeMetadataChangesRequest
from ottla.wire.messages.describe_metadata_changes_response import (
    DescribeMetadataChangesResponse,
    MetadataChange,
)

LATEST, EARLIEST = -1, -2
STARTS = {"latest": LATEST, "earliest": EARLIEST}
AGAIN_S = 1.0
WAIT_MS = 2_000
"""Maximum milliseconds that a broker waits for the next metadata change before it responds. With a
longer wait, the command reacts later to Ctrl-C and to the loss of a broker."""


async def log(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla quorum log`: print changes of the metadata as they are committed. Returns the exit
    code."""
    offset = _start(arguments)
    left: int | None = arguments.max
    is_answered, trouble = False, ""
    while left is None or left > 0:
        try:
            answer = await _ask(admin, offset, wait_ms=WAIT_MS if arguments.follow else 0)
        except ConnectionLostError as error:
            if not arguments.follow or not is_answered:
                raise
            if str(error) != trouble:
                note(f"ottla quorum: {error}; trying again")
            trouble = str(error)
            await trio.sleep(AGAIN_S)
            continue
        is_answered, trouble = True, ""
        for change in answer.changes[:left]:
            _show(arguments, change)
        left = None if left is None else left - len(answer.changes)
        is_at_end = answer.next_offset >= answer.end_offset
        offset = answer.next_offset
        if is_at_end and not arguments.follow:
            return 0
    return 0


def _start(arguments: argparse.Namespace) -> int:
    text = arguments.start or ("latest" if arguments.follow else "earliest")
    if text in STARTS:
        return STARTS[text]
    if text.isdecimal():
        return int(text)
    raise ConfigError("--from", f"is {text!r}; it must be an offset, earliest or latest")


async def _ask(admin: Admin, offset: int, *, wait_ms: int) -> DescribeMetadataChangesResponse:
    request = DescribeMetadataChangesRequest(start_offset=offset, wait_ms=wait_ms)
    answer = await admin.cluster.request(request, DescribeMetadataChangesResponse)
    if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        raise RefusedError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{answer.error_message} --from earliest begins with the first of them.",
        )
    raise_for(answer.error_code, answer.error_message)
    return answer


def _show(arguments: argparse.Namespace, change: MetadataChange) -> None:
    if arguments.format == "json":
        row = {
            "offset": change.offset,
            "epoch": change.epoch,
            "timestamp_ms": change.timestamp_ms,
            "kind": change.kind,
            "text": change.text,
        }
        say_json(row, is_flushed=True)
    else:
        moment = datetime.fromtimestamp(change.timestamp_ms / 1_000, UTC)
        time = f"{moment:%Y-%m-%dT%H:%M:%SZ}"
        say(f"{change.offset:>8}  {time}  {change.text}", is_flushed=True)


LOG = admin_verb(
    "log",
    "print changes of the metadata in words",
    log,
    option("--follow -f", "go on with new changes until interrupted"),
    option("--from OFFSET", "first offset, or earliest or latest", dest="start"),
    option("--max N", "number of changes to print", type=int),
    description="Records that change nothing are left out. Credentials and secret settings are not "
    "shown. Without --follow, the command begins with the oldest change that is not in a snapshot.",
)
