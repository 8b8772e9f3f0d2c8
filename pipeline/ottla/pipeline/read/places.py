"""From what options say to offsets: where a query begins, and where a batch ends.

Blocking: it asks the cluster.
"""

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.pipeline.read.asking import Asking, FoundTopics
from ottla.pipeline.read.offsets import (
    EARLIEST,
    LATEST,
    Each,
    Place,
    StreamPosition,
    ask_for,
)
from ottla.pipeline.read.ranges import OffsetRange
from ottla.pipeline.read.source_options import SourceOptions

GO_ON = "set failOnDataLoss to false to read what is there"


def present(asking: Asking, options: SourceOptions) -> FoundTopics:
    """Return what there is to read; RefusedError where something that is named is not there."""
    found = asking.find_topics(options.topics)
    if found.missing:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {', no '.join(found.missing)}"
        )
    return found


def starting_position(
    asking: Asking, options: SourceOptions, topics: FoundTopics
) -> StreamPosition:
    """Return where a new query begins; RefusedError where that is not in the log."""
    offsets = _resolved(asking, options.start, topics, "starting")
    late = [at for at, offset in sorted(offsets.items()) if offset == LATEST]
    if late and options.fails_without_match:
        raise RefusedError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{', '.join(map(str, late))} has no record as late as asked; "
            "startingOffsetsByTimestampStrategy=latest begins at the end there",
        )
    offsets |= asking.offsets(dict.fromkeys(late, LATEST))
    return StreamPosition(
        _within_logs(asking, options.start, offsets, "starting", options), topics.topic_ids
    )


def ending_position(asking: Asking, options: SourceOptions, topics: FoundTopics) -> StreamPosition:
    """Return where a batch query ends: the end of the log where no record is so late."""
    offsets = _resolved(asking, options.end, topics, "ending")
    late = [at for at, offset in offsets.items() if offset == LATEST]
    offsets |= asking.offsets(dict.fromkeys(late, LATEST))
    return StreamPosition(
        _within_logs(asking, options.end, offsets, "ending", options), topics.topic_ids
    )


def batch_ranges(asking: Asking, options: SourceOptions) -> list[OffsetRange]:
    """Return what a batch query reads.

    RefusedError where the log does not have what was named; with `failOnDataLoss` false what it
    has of that.
    """
    topics = present(asking, options)
    start = starting_position(asking, options, topics).offsets
    end = ending_position(asking, options, topics).offsets
    for at in sorted(topics.partitions):
        if end[at] < start[at] and isinstance(options.end, Each):
            raise ConfigError(
                "endingOffsets", f"ends {at} at {end[at]}, before it begins at {start[at]}"
            )
    return [
        OffsetRange(
            at.topic,
            at.partition,
            start[at],
            max(start[at], end[at]),
            topics.topic_ids.get(at.topic, ""),
        )
        for at in sorted(topics.partitions)
    ]


def _within_logs(
    asking: Asking,
    place: Place,
    offsets: dict[TopicPartition, int],
    which: str,
    options: SourceOptions,
) -> dict[TopicPartition, int]:
    """Return offsets that lie in their logs: those that the user named may not."""
    if not isinstance(place, Each):
        return offsets
    first = asking.offsets(dict.fromkeys(offsets, EARLIEST))
    last = asking.offsets(dict.fromkeys(offsets, LATEST))
    held = {at: min(max(offset, first[at]), last[at]) for at, offset in offsets.items()}
    for at, offset in sorted(offsets.items()):
        if held[at] != offset and options.read.fail_on_data_loss:
            raise RefusedError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{which}Offsets names offset {offset} of {at}, whose log has "
                f"[{first[at]}, {last[at]}); {GO_ON}",
            )
    return held


def _resolved(
    asking: Asking, place: Place, topics: FoundTopics, which: str
) -> dict[TopicPartition, int]:
    try:
        known, asked = ask_for(place, topics.partitions)
    except ValueError as error:
        suffix = "Offsets" if isinstance(place, Each) else "OffsetsByTimestamp"
        raise ConfigError(which + suffix, str(error)) from None
    return known | asking.offsets(asked)
