"""Resolution of a query's options to offsets: the start of a query (startingOffsets), and the end
of a batch query (endingOffsets).

Blocking: it sends requests to the cluster.
"""

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.pipeline.read.cluster_queries import ClusterQueries, FoundTopics
from ottla.pipeline.read.offsets import (
    EARLIEST,
    LATEST,
    OffsetPerPartition,
    Place,
    StreamPosition,
    ask_for,
)
from ottla.pipeline.read.ranges import OffsetRange
from ottla.pipeline.read.source_options import SourceOptions

GO_ON = "set failOnDataLoss to false to read what is there"


def present(asking: ClusterQueries, options: SourceOptions) -> FoundTopics:
    """Return the topics and partitions in a query's options that exist in the cluster. Raises
    RefusedError if a topic or partition that the options name does not exist."""
    found = asking.find_topics(options.topics)
    if found.missing:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {', no '.join(found.missing)}"
        )
    return found


def starting_position(
    asking: ClusterQueries, options: SourceOptions, topics: FoundTopics
) -> StreamPosition:
    """Return the start offsets of a new query, by partition. Raises RefusedError if a start offset
    is outside the log of its partition."""
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


def ending_position(
    asking: ClusterQueries, options: SourceOptions, topics: FoundTopics
) -> StreamPosition:
    """Return the end offsets of a batch query, by partition. For a partition without a record at or
    after the requested timestamp, it is the end of the log."""
    offsets = _resolved(asking, options.end, topics, "ending")
    late = [at for at, offset in offsets.items() if offset == LATEST]
    offsets |= asking.offsets(dict.fromkeys(late, LATEST))
    return StreamPosition(
        _within_logs(asking, options.end, offsets, "ending", options), topics.topic_ids
    )


def batch_ranges(asking: ClusterQueries, options: SourceOptions) -> list[OffsetRange]:
    """Return the offset ranges that a batch query reads.

    Raises RefusedError if an offset in the options is outside the log of its partition. If
    `failOnDataLoss` is false, the ranges are limited to the log instead.
    """
    topics = present(asking, options)
    start = starting_position(asking, options, topics).offsets
    end = ending_position(asking, options, topics).offsets
    for at in sorted(topics.partitions):
        if end[at] < start[at] and isinstance(options.end, OffsetPerPartition):
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
    asking: ClusterQueries,
    place: Place,
    offsets: dict[TopicPartition, int],
    which: str,
    options: SourceOptions,
) -> dict[TopicPartition, int]:
    """Return the user's offsets, each limited to the log of its partition.

    Raises RefusedError for an offset outside the partition's log, unless `failOnDataLoss` is false.
    """
    if not isinstance(place, OffsetPerPartition):
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
    asking: ClusterQueries, place: Place, topics: FoundTopics, which: str
) -> dict[TopicPartition, int]:
    try:
        known, asked = ask_for(place, topics.partitions)
    except ValueError as error:
        suffix = "Offsets" if isinstance(place, OffsetPerPartition) else "OffsetsByTimestamp"
        raise ConfigError(which + suffix, str(error)) from None
    return known | asking.offsets(asked)
