"""`ottla pipeline compact DIR`: an archive's many small files into few."""

import argparse
from dataclasses import asdict
from pathlib import Path

from ottla.cli.common import add_format_argument, counted, print_json
from ottla.cli.terminal import say
from ottla.cli.times import parse_duration
from ottla.model.errors import ConfigError

TARGET_MIB = 128
KEEP = "1h"
MEBIBYTE = 1 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("directory", metavar="DIR", help="directory of an archive")
    parser.add_argument(
        "--target-mib",
        type=int,
        default=TARGET_MIB,
        metavar="N",
        help=f"size of merged files in MiB; below half a file is small (default: {TARGET_MIB})",
    )
    parser.add_argument(
        "--keep",
        default=KEEP,
        metavar="DURATION",
        help=f"time to keep merged files for running readers (default: {KEEP})",
    )
    add_format_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compact once and say what was done."""
    from ottla.pipeline.run.session import require_pyspark

    require_pyspark()
    from ottla.pipeline.archive.compaction import Compacted, compact

    path = Path(arguments.directory)
    if not path.is_dir():
        raise ConfigError("DIR", f"{path} is no directory on this machine")
    if arguments.target_mib < 1:
        raise ConfigError("--target-mib", f"is {arguments.target_mib}; it must be at least 1")
    done: Compacted = compact(
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
