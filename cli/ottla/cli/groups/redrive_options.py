"""Declaration of the options of `ottla share redrive`, in a separate module so that other commands
need not import the implementation."""

from ottla.cli.confirmation import CONFIRMATION
from ottla.cli.options import Declared, option

PROGRESS_TOPIC = "ottla.redrive"

REDRIVE_OPTIONS: tuple[Declared, ...] = (
    option(
        "--dead-letter-topic TOPIC",
        "topic with the dead letters (default: that of the group's settings)",
    ),
    option(
        "--topic TOPIC[:PARTITION,…] ...",
        "only letters for records of this topic or partitions; may be repeated (default: all)",
    ),
    option(
        "--cause",
        "only letters of records that were rejected, or whose deliveries were exhausted (default: "
        "all)",
        choices=("rejected", "exhausted"),
    ),
    option("--since TIME", "only letters with a timestamp from TIME on, such as 2026-01-31 or 2h"),
    option("--until TIME", "only letters with a timestamp before TIME"),
    option("--limit N", "number of letters to move (default: no limit)", type=int),
    option(
        "--redrives-max N",
        "number of times that one record may be moved (default: %(default)s)",
        type=int,
        default=3,
    ),
    option(
        "--progress-topic TOPIC",
        "topic for the progress of this command, which it creates (default: %(default)s)",
        default=PROGRESS_TOPIC,
    ),
    CONFIRMATION,
)
