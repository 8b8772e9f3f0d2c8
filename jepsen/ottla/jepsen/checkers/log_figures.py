"""Statistics about logs, reported beside the verdict: consumer lags, and the number of times
records were read.

The module is pure. The real-time lag of a poll is a duration. It counts from the time at which the
next unread record was first known to exist, until the poll began. It is 0 if there was no unread
record.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.jepsen.checkers.log_order import polls_with_readers
from ottla.jepsen.checkers.log_reading import LogReading, Value
from ottla.jepsen.history import Json

SERIES_POINTS_MAX = 400
"""Maximum number of points of a plotted line in a report. More points would make reports larger
without a visible difference."""

CONSUMED_TIMES_MAX = 20
"""Highest number of reads that the statistics distinguish. Records that were read this often or
more often are counted together."""

NS_PER_S = 1_000_000_000


class PollLag(NamedTuple):
    """Lag of a client process on one key (partition) at one poll."""

    time_ns: int
    process: int
    key: str
    lag_ns: int


def known_since_ns(reading: LogReading) -> dict[str, list[int]]:
    """For each key (partition), return one time in ns per polled offset. A record at this offset or
    above was first known to exist at that time."""
    since: dict[str, dict[int, int]] = {key: {} for key in reading.keys}
    for send in reading.sends:
        completion = send.operation.completion
        if send.is_promised and send.offset is not None and completion is not None:
            since[send.key].setdefault(send.offset, completion.time_ns)
    for poll in reading.polls:
        completion = poll.operation.completion
        if not poll.is_ok or completion is None:
            continue
        now_ns = completion.time_ns
        for key, records in poll.records.items():
            if records:
                # The last record proves that all records below it exist.
                known, offset = since[key], records[-1][0]
                known[offset] = min(known.get(offset, now_ns), now_ns)
    never = reading.history.end_ns + 1
    found: dict[str, list[int]] = {}
    for key, log in reading.keys.items():
        times = [since[key].get(offset, never) for offset in log.polled]
        for place in range(len(times) - 2, -1, -1):
            times[place] = min(times[place], times[place + 1])
        found[key] = times
    return found


def realtime_lags(reading: LogReading) -> Iterator[PollLag]:
    """Yield the lag of every successful poll, for each key (partition) that its process had read
    from."""
    since = known_since_ns(reading)
    for poll, reader in polls_with_readers(reading):
        operation = poll.operation
        for key, records in poll.records.items():
            if records:
                reader.last[key] = (records[-1][0], operation)
        began_ns = operation.invoke.time_ns
        for key, (offset, _) in reader.last.items():
            times = since[key]
            place = reading.keys[key].position[offset] + 1
            lag_ns = began_ns - times[place] if place < len(times) else 0
            yield PollLag(began_ns, operation.invoke.process, key, max(lag_ns, 0))


def unseen_over_time(reading: LogReading) -> list[tuple[int, int]]:
    """Return (time_ns, number of unread records) for each change of this number. A record is unread
    from its acknowledgement until a client reads it."""
    changes: list[tuple[int, int]] = []
    for send in reading.sends:
        if not send.is_promised or send.operation.completion is None:
            continue
        acknowledged_ns = send.operation.completion.time_ns
        poll = reading.keys[send.key].reads.get(send.value)
        changes.append((acknowledged_ns, 1))
        if poll is not None and poll.operation.completion is not None:
            changes.append((max(acknowledged_ns, poll.operation.completion.time_ns), -1))
    changes.sort(key=lambda change: (change[0], -change[1]))
    unseen = 0
    found: list[tuple[int, int]] = []
    for time_ns, change in changes:
        unseen += change
        found.append((time_ns, unseen))
    return found


def consume_counts(reading: LogReading) -> dict[str, int]:
    """Count records by how often consumer groups have read them. Returns the number of records for
    each number of reads."""
    counts: dict[str, Counter[Value]] = {key: Counter() for key in reading.keys}
    for poll, reader in polls_with_readers(reading):
        if reader.is_subscribed:
            for key, records in poll.records.items():
                counts[key].update([value for _, value in records])
    total: Counter[int] = Counter()
    for count in counts.values():
        total.update(min(times, CONSUMED_TIMES_MAX) for times in count.values())
    return {str(times): n for times, n in sorted(total.items())}


def figures(reading: LogReading) -> dict[str, Json]:
    """Return the statistics about consumer lags and repeated reads that are reported beside the
    verdict, by name."""
    lags = list(realtime_lags(reading))
    worst: dict[str, int] = {}
    for lag in lags:
        worst[lag.key] = max(worst.get(lag.key, 0), lag.lag_ns)
    ordered = sorted(lag.lag_ns for lag in lags)
    return {
        "keys": len(reading.keys),
        "records_sent": len(reading.sends),
        "records_acknowledged": sum(send.is_promised for send in reading.sends),
        "records_read": sum(len(log.reads) for log in reading.keys.values()),
        "records_polled": sum(
            len(records) for poll in reading.polls for records in poll.records.values()
        ),
        "unseen_over_time": thinned(
            [(time_ns, float(count)) for time_ns, count in unseen_over_time(reading)]
        ),
        "realtime_lag_s": {
            "p50": quantile(ordered, 0.5) / NS_PER_S,
            "p99": quantile(ordered, 0.99) / NS_PER_S,
            "max": quantile(ordered, 1.0) / NS_PER_S,
        },
        "realtime_lag_over_time": thinned([(lag.time_ns, lag.lag_ns / NS_PER_S) for lag in lags]),
        "realtime_lag_worst_s": {
            key: worst[key] / NS_PER_S for key in sorted(worst, key=lambda key: -worst[key])[:10]
        },
        "consume_counts": consume_counts(reading),
    }


def quantile(ordered: Sequence[int], share: float) -> int:
    """Return the quantile of an ascending list at a fraction (`share`) from 0 to 1, or 0 if the
    list is empty."""
    if not ordered:
        return 0
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def thinned(points: list[tuple[int, float]]) -> list[list[float]]:
    """Reduce the points (time in ns, value) of a plotted line to at most SERIES_POINTS_MAX points:
    [seconds, highest value] for time periods of equal length."""
    if not points:
        return []
    end_ns = max(time_ns for time_ns, _ in points) + 1
    highest: dict[int, float] = {}
    for time_ns, value in points:
        at = time_ns * SERIES_POINTS_MAX // end_ns
        highest[at] = max(highest.get(at, value), value)
    return [
        [round(at * end_ns / SERIES_POINTS_MAX / NS_PER_S, 3), highest[at]]
        for at in sorted(highest)
    ]
