"""`ottla quorum snapshot`: requests a metadata snapshot from the active controller."""

import argparse

import trio

from ottla.cli.common import print_json
from ottla.cli.options import option
from ottla.cli.terminal import note, say
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.client.network.cluster import raise_for
from ottla.model.amounts import amount
from ottla.wire.messages.write_snapshot_request import WriteSnapshotRequest
from ottla.wire.messages.write_snapshot_response import WriteSnapshotResponse

NOTE_S = 3.0
"""Interval, in seconds, between printed notes that the controller is still writing the snapshot. A
snapshot of a million partitions takes half a minute."""


async def snapshot(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla quorum snapshot`: request a metadata snapshot from the active controller, and print
    the snapshot's end offset and size. Returns the exit code."""
    async with trio.open_nursery() as nursery:
        if not arguments.dry_run:
            nursery.start_soon(_note_progress)
        request = WriteSnapshotRequest(validate_only=arguments.dry_run)
        answer = await admin.cluster.request(request, WriteSnapshotResponse)
        nursery.cancel_scope.cancel()
    raise_for(answer.error_code, answer.error_message)
    if arguments.format == "json":
        print_json(
            {
                "node_id": answer.node_id,
                "written": not arguments.dry_run,
                "end_offset": answer.end_offset,
                "epoch": answer.epoch,
                "size_bytes": None if arguments.dry_run else answer.size_bytes,
                "latest_end_offset": answer.latest_end_offset,
                "log_start_offset": answer.log_start_offset,
            }
        )
    elif arguments.dry_run:
        say(
            f"controller {answer.node_id} would write a snapshot of the records before offset"
            f" {answer.end_offset}; its latest one ends at {answer.latest_end_offset}, and its log"
            f" starts at {answer.log_start_offset}"
        )
    else:
        say(
            f"controller {answer.node_id} has written a snapshot of the records before offset"
            f" {answer.end_offset} ({amount(answer.size_bytes)}); its log starts at"
            f" {answer.log_start_offset}"
        )
    return 0


async def _note_progress() -> None:
    while True:
        await trio.sleep(NOTE_S)
        note("ottla quorum: the snapshot is being written")


SNAPSHOT = admin_verb(
    "snapshot",
    "have the active controller write a snapshot of the metadata now",
    snapshot,
    option("--dry-run", "show what would be written"),
    description="Controllers also write snapshots by themselves, by size and time. A new or "
    "restarted node loads the latest one. If the command times out, the snapshot is still written; "
    "--dry-run shows the latest one.",
)
