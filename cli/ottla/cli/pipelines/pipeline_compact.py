"""`ottla pipeline compact DIR`: merges the small files of an archive into few large ones."""

import argparse
from dataclasses import asdict
from pathlib import Path

from ottla.cli.common import FORMAT, counted, print_json
from ottla.cli.options import Declared, option
from ottla.cli.terminal import say
from ottla.cli.times import parse_duration
from ottla.model.errors import ConfigError

TARGET_MIB = 128
KEEP = "1h"
MEBIBYTE = 1 << 20


OPTIONS: tuple[Declared, ...] = (
    option("directory DIR", "directory of an archive"),
    option(
        "--target-mib N",
        f"size of merged files in MiB; below half a file is small (default: {TARGET_MIB})",
        type=int,
        default=TARGET_MIB,
    ),
    option(
        "--keep DURATION",
        f"time to keep merged files for running readers (default: {KEEP})",
        default=KEEP,
    ),
    FORMAT,
)


def run(arguments: argparse.Namespace) -> int:
    """`ottla pipeline compact`: compact an archive once and print the result. Returns the exit
    code."""
    from ottla.pipeline.run.session import require_pyspark

    require_pyspark()
    from ottla.pipeline.archive.compaction import CompactionResult, compact

    path = Path(arguments.directory)
    if not path.is_dir():
        raise ConfigError("DIR", f"{path} is no directory on this machine")
    if arguments.target_mib < 1:
        raise ConfigError("--target-mib", f"is {arguments.target_mib}; it must be at least 1")
    done: CompactionResult = compact(
        path,
        target_bytes=arguments.target_mib * MEBIBYTE,
        keep_s=parse_duration("--keep", arguments.keep),
    )
    if arguments.format == "json":
        print_json(asdict(done))
        return 0
    say(
        f"{counted(done.merged_count, 'small file')} into {done.made_count}, "
        f"{done.row_count:,} rows, {_mib(done.byte_count_before)} into "
        f"{_mib(done.byte_count_after)}; "
        f"{counted(done.removed_count, 'file')} of before removed "
        f"({_mib(done.removed_byte_count)})"
    )
    return 0


def _mib(byte_count: int) -> str:
    return f"{byte_count / MEBIBYTE:,.1f} MiB"
