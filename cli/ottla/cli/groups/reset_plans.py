"""Formats and parses plans of `ottla group reset` as CSV, in the form of Kafka's
kafka-consumer-groups, and parses the command's arguments.

Pure. A line is TOPIC,PARTITION,OFFSET, or GROUP,TOPIC,PARTITION,OFFSET in a file with several
groups. There is no header.
"""

import csv
import io
import re
from collections.abc import Mapping

from ottla.cli.times import parse_duration
from ottla.model.errors import ConfigError
from ottla.model.ids import TopicPartition

ISO_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.IGNORECASE
)
SECONDS_OF = (86_400, 3_600, 60, 1)
OFFSET_MAX = (1 << 63) - 1


def parse_plan(text: str, group: str) -> dict[TopicPartition, int]:
    """Parse a plan of new committed offsets (CSV lines), and return the offsets of one group. Lines
    of other groups are ignored.

    Raises ConfigError with the line number if a line is malformed, or if no line belongs to the
    group.
    """
    found: dict[TopicPartition, int] = {}
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    try:
        for row in rows:
            if not row:
                continue
            if len(row) not in (3, 4):
                raise _malformed(rows.line_num)
            of, (topic, partition, offset) = (row[0] if len(row) == 4 else group), row[-3:]
            if not topic or not _is_number(partition) or not _is_number(offset):
                raise _malformed(rows.line_num)
            if of == group:
                found[TopicPartition(topic, int(partition))] = int(offset)
    except csv.Error as error:
        raise ConfigError("--from-file", f"is not CSV: {error}") from None
    if not found:
        raise ConfigError("--from-file", f"has no offsets of group {group!r}")
    return found


def format_plan(offsets: Mapping[TopicPartition, int]) -> str:
    """Return the offsets of one group as CSV lines that `--from-file` and Kafka's tool read."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows((at.topic, at.partition, offset) for at, offset in offsets.items())
    return text.getvalue().removesuffix("\n")


def parse_reset_duration(option: str, text: str) -> int:
    """Parse a duration in the form of Kafka's tools, such as P1DT2H30M, or in the form of `ottla`,
    such as 36h. Returns milliseconds."""
    found = ISO_DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        try:
            return round(parse_duration(option, text) * 1_000)
        except ConfigError:
            raise ConfigError(
                option, f"is {text!r}; it must be a duration such as P1DT2H30M, PT5M or 36h"
            ) from None
    parts = zip(SECONDS_OF, found.groups(), strict=True)
    return round(sum(unit * float(count or 0) for unit, count in parts) * 1_000)


def parse_places(option: str, text: str) -> tuple[str, list[int] | None]:
    """Parse a text TOPIC or TOPIC:0,1. Returns the topic and its partitions, or the topic and None
    if the text means all partitions. `option` is the name of the option in errors."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    parts = numbers.split(",")
    if not topic or not all(map(_is_number, parts)):
        raise ConfigError(option, f"is {text!r}; it must be TOPIC or TOPIC:0,1")
    return topic, sorted(set(map(int, parts)))


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,19}", text.strip()) is not None and int(text) <= OFFSET_MAX


def _malformed(line: int) -> ConfigError:
    return ConfigError(
        "--from-file",
        f"line {line} must be TOPIC,PARTITION,OFFSET or GROUP,TOPIC,PARTITION,OFFSET",
    )
