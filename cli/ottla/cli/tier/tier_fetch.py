"""`ottla tier fetch`: downloads the segments of a partition. The files have the same form as files
in a broker's log directory.

`ottla log dump` and Kafka's kafka-dump-log can print these files.
"""

import argparse
from pathlib import Path

from ottla.cli.common import run_async
from ottla.cli.main import OK
from ottla.cli.outcomes import show
from ottla.cli.tables import ByteCount
from ottla.cli.terminal import note
from ottla.cli.tier.progress_line import BucketProgress
from ottla.cli.tier.restored_files_driver import write_log
from ottla.cli.tier.store_options import open_bucket
from ottla.cli.tier.stored_log import parse_partition, read_log
from ottla.model.errors import ConfigError
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.segments.files import LOG, file_name

COLUMNS = ("FILE", "START-OFFSET", "END-OFFSET", "SIZE")


def run(arguments: argparse.Namespace) -> int:
    """`ottla tier fetch`: write the segments of a partition into a directory. Returns the exit
    code."""
    topic, partition = parse_partition(arguments.partition)
    directory = Path(arguments.into) / f"{topic}-{partition}"
    if directory.exists():
        raise ConfigError("--into", f"{directory} exists; name another directory, or remove it")

    async def body() -> int:
        async with open_bucket(arguments) as bucket, RealDisk() as disk:
            log, _ = await read_log(bucket, topic, partition)
            pieces = tuple(
                one
                for one in log.pieces
                if one.end_offset > arguments.start_offset
                and (arguments.end_offset is None or one.start_offset < arguments.end_offset)
            )
            if not pieces:
                raise ConfigError(
                    "--start-offset",
                    f"the bucket has offsets {log.start_offset} to {log.end_offset - 1}",
                )
            log = log._replace(pieces=pieces)
            size = sum(one.manifest.size_bytes for one in pieces)
            with BucketProgress("fetching records", "bytes", size) as line:
                topic_id = pieces[0].manifest.topic_id
                await write_log(disk, bucket.store, str(directory), topic_id, log, line.advance)
        rows = [
            (
                file_name(one.start_offset, LOG),
                one.start_offset,
                one.end_offset,
                ByteCount((directory / file_name(one.start_offset, LOG)).stat().st_size),
            )
            for one in pieces
        ]
        show(arguments, COLUMNS, rows, command="tier")
        note(f"see 'ottla log dump {directory / rows[0][0]}'")
        return OK

    return run_async(body)
