"""Checkers for programs that use Kafka: pure functions over inputs, outputs and samples of lag.

A checker returns None if the program was correct, and raises `CheckFailedError` otherwise. The
message names the records and the instances, and shows the events around them. The events are from
the timeline that the caller passes, or else from the timeline of the running world.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from ottla.testing.world.errors import CheckFailedError
from ottla.testing.world.life import HARNESS
from ottla.testing.world.records import LagReading, WrittenRecord
from ottla.testing.world.timeline import TIMELINE, Timeline, TimelineEvent, excerpt, printable

A = TypeVar("A")
B = TypeVar("B")
Key = Callable[[Any], Hashable]
"""Function that returns the key of an input or output. Inputs and outputs with equal keys belong to
the same piece of work."""

LINES_MAX = 25
"""Maximum number of lines in the message of a `CheckFailedError`."""
RECORD_LINES_MAX = 9
"""Number of lines after which the message of a `CheckFailedError` describes no further wrong key,
and only reports how many are left out."""
PLACES_MAX = 3
"""Maximum number of outputs with the same key that the message of a `CheckFailedError` lists."""
VALUE_COLUMNS_MAX = 70
_DISTURBING_KINDS = frozenset({"fault", "kill", "pause", "stop"})


class Comparable(Protocol):
    """Type of values that can be ordered with `<`."""

    def __lt__(self, other: Any, /) -> bool:
        """Return whether this value is less than `other`."""


def exactly_once(
    inputs: Iterable[A],
    outputs: Iterable[B],
    *,
    key: Key,
    output_key: Key | None = None,
    timeline: Timeline | None = None,
) -> None:
    """Check that each input has exactly one output, and that each output has an input.

    `key` identifies inputs and outputs; `output_key` replaces it for outputs. If several inputs
    have the same key, the same number of outputs must have this key.

    Raises CheckFailedError if an output is missing, occurs twice or has no input.
    """
    sides = _Sides(inputs, outputs, key, output_key, timeline)
    lost = [found for found in sides.input_keys if sides.missing_count(found) > 0]
    twice = [found for found in sides.input_keys if sides.missing_count(found) < 0]
    unknown = [found for found in sides.output_keys if found not in sides.input_keys]
    message = _Message("exactly_once", sides.timeline)
    message.count(lost, sides.inputs, "input", "has no output")
    message.count(twice, sides.inputs, "input", "has more than one output")
    message.count(unknown, sides.outputs, "output", "has no input")
    for found in lost:
        message.describe(found, sides.inputs_of(found), sides.outputs_of(found))
    for found in twice:
        message.describe(found, sides.inputs_of(found), sides.outputs_of(found))
    for found in unknown:
        message.describe(found, [], sides.outputs_of(found))
    message.raise_if_any()


def at_least_once(
    inputs: Iterable[A],
    outputs: Iterable[B],
    *,
    key: Key,
    output_key: Key | None = None,
    timeline: Timeline | None = None,
) -> None:
    """Check that each input has an output. Repeated outputs and outputs without input are allowed.

    Raises CheckFailedError if an output is missing. See `exactly_once` for the keys.
    """
    sides = _Sides(inputs, outputs, key, output_key, timeline)
    lost = [found for found in sides.input_keys if sides.missing_count(found) > 0]
    message = _Message("at_least_once", sides.timeline)
    message.count(lost, sides.inputs, "input", "has no output")
    for found in lost:
        message.describe(found, sides.inputs_of(found), sides.outputs_of(found))
    message.raise_if_any()


def in_key_order(
    outputs: Iterable[A],
    *,
    key: Key,
    order: Callable[[Any], Comparable],
    allow_repeats: bool = False,
    timeline: Timeline | None = None,
) -> None:
    """Check that outputs with the same key are in order.

    `order` returns the position of an output among those with its key, such as a sequence number.
    The position must never decrease. With `allow_repeats`, a position that occurred before is a
    repeated delivery and is skipped, so that only the first output of each position is checked.

    Raises CheckFailedError with the first output of each key that is out of order.
    """
    last: dict[Hashable, A] = {}
    seen: dict[Hashable, list[Any]] = {}
    wrong: dict[Hashable, tuple[A, A]] = {}
    total: set[Hashable] = set()
    for output in outputs:
        found, position = key(output), order(output)
        total.add(found)
        if allow_repeats:
            positions = seen.setdefault(found, [])
            if position in positions:
                continue
            positions.append(position)
        before = last.get(found)
        if before is not None and position < order(before) and found not in wrong:
            wrong[found] = (before, output)
        last[found] = output
    message = _Message("in_key_order", timeline)
    message.count(wrong, total, "key", "has outputs out of order")
    for found, (before, output) in wrong.items():
        message.describe_order(found, (before, order(before)), (output, order(output)))
    message.raise_if_any()


def no_lost_dead_letter(
    inputs: Iterable[A],
    outputs: Iterable[B],
    dead_letters: Iterable[Any],
    *,
    key: Key,
    output_key: Key | None = None,
    dead_letter_key: Key | None = None,
    timeline: Timeline | None = None,
) -> None:
    """Check that each input has an output or a dead letter, and each dead letter an input.

    An input may have both, because a program that processes at least once may fail at first and
    succeed later. `key` identifies inputs, outputs and dead letters; `output_key` and
    `dead_letter_key` replace it for outputs and dead letters.

    Raises CheckFailedError if an input has neither, or if a dead letter has no input.
    """
    sides = _Sides(inputs, outputs, key, output_key, timeline)
    letters: dict[Hashable, list[Any]] = {}
    for letter in dead_letters:
        letters.setdefault((dead_letter_key or key)(letter), []).append(letter)
    lost = [
        found
        for found in sides.input_keys
        if found not in sides.output_keys and found not in letters
    ]
    unknown = [found for found in letters if found not in sides.input_keys]
    message = _Message("no_lost_dead_letter", sides.timeline)
    message.count(lost, sides.inputs, "input", "has neither an output nor a dead letter")
    total = [letter for one in letters.values() for letter in one]
    message.count(unknown, total, "dead letter", "has no input")
    for found in lost:
        message.describe(found, sides.inputs_of(found), [])
    for found in unknown:
        message.describe(found, [], letters[found])
    message.raise_if_any()


def settles(
    samples: Iterable[LagReading],
    *,
    within_s: float,
    since_s: float | None = None,
    timeline: Timeline | None = None,
) -> None:
    """Check that the lag of a group falls to 0 in time, and stays there.

    The time counts from `since_s`, in virtual seconds; by default from the last fault in the
    timeline, or from the first sample. The samples must be in order of time.

    Raises CheckFailedError if the group still has lag later than that. Raises ValueError if there
    are no samples, or if they end too early to decide.
    """
    found = list(samples)
    if not found:
        raise ValueError("settles() needs at least one sample of the lag")
    story = TIMELINE.get() if timeline is None else timeline
    since = _last_disturbance_s(story, found[0].at_s) if since_s is None else since_s
    deadline_s = since + within_s
    late = [one for one in found if one.lag > 0 and one.at_s > deadline_s]
    if not late:
        if found[-1].lag > 0 and found[-1].at_s < deadline_s:
            raise ValueError(
                f"settles() needs samples until {deadline_s:.3f} s; the last one is of "
                f"{found[-1].at_s:.3f} s and has a lag of {found[-1].lag}"
            )
        return
    first = late[0]
    zero = next((one for one in found if one.at_s > first.at_s and one.lag == 0), None)
    message = _Message("settles", story)
    message.lines = [
        f"the group{_named(first)} still had a lag of {first.lag} records at {first.at_s:.3f} s,",
        f"{first.at_s - since:.1f} s after "
        + ("the last fault" if since_s is None else f"{since:.3f} s")
        + f"; the limit is {within_s:g} s.",
        f"It caught up at {zero.at_s:.3f} s."
        if zero is not None
        else f"It did not catch up: the lag was {found[-1].lag} at {found[-1].at_s:.3f} s, "
        "the last sample.",
    ]
    message.keys = list(late)
    message.moments = [since, first.at_s]
    message.raise_if_any()


def bounded_lag(
    samples: Iterable[LagReading],
    *,
    max_records: int,
    timeline: Timeline | None = None,
) -> None:
    """Check that the lag of a group never exceeds a number of records.

    Raises CheckFailedError with the first and the largest sample above it. Raises ValueError if
    there are no samples.
    """
    found = list(samples)
    if not found:
        raise ValueError("bounded_lag() needs at least one sample of the lag")
    above = [one for one in found if one.lag > max_records]
    if not above:
        return
    largest = max(above, key=lambda one: one.lag)
    message = _Message("bounded_lag", timeline)
    message.lines = [
        f"the group{_named(above[0])} had a lag of {above[0].lag} records at "
        f"{above[0].at_s:.3f} s; at most {max_records} are allowed.",
        f"{len(above)} of {len(found)} samples were above it. The largest lag was {largest.lag}, "
        f"at {largest.at_s:.3f} s.",
    ]
    message.keys = list(above)
    message.moments = [above[0].at_s, largest.at_s]
    message.raise_if_any()


class _Sides:
    """Inputs and outputs of a checked program, grouped by key."""

    def __init__(
        self,
        inputs: Iterable[Any],
        outputs: Iterable[Any],
        key: Key,
        output_key: Key | None,
        timeline: Timeline | None,
    ) -> None:
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.timeline = timeline
        self._key = key
        self._output_key = output_key or key
        self.input_keys = Counter(map(self._key, self.inputs))
        self.output_keys = Counter(map(self._output_key, self.outputs))

    def missing_count(self, key: Hashable) -> int:
        """Return the number of outputs with this key that are missing, compared with the inputs.
        Negative if there are too many."""
        return self.input_keys[key] - self.output_keys[key]

    def inputs_of(self, key: Hashable) -> list[Any]:
        """Return the inputs whose key equals `key`."""
        return [one for one in self.inputs if self._key(one) == key]

    def outputs_of(self, key: Hashable) -> list[Any]:
        """Return the outputs whose key equals `key`."""
        return [one for one in self.outputs if self._output_key(one) == key]


class _Message:
    """Message of a failed check: counts, some of the wrong records, and the events around them."""

    def __init__(self, check: str, timeline: Timeline | None) -> None:
        self._check = check
        self._timeline = TIMELINE.get() if timeline is None else timeline
        self.lines: list[str] = []
        self.keys: list[object] = []
        self.moments: list[float] = []
        self._subjects: list[TimelineEvent] = []
        self._described_count = 0
        self._hidden_count = 0

    def count(
        self, keys: Iterable[Hashable], total: Iterable[object], noun: str, rest: str
    ) -> None:
        """Record keys as wrong, and add a sentence with their number to the message. Does nothing
        if `keys` is empty."""
        wrong = list(keys)
        self.keys += wrong
        if not wrong:
            return
        total_count = len(list(total))
        if len(wrong) > 1:
            rest = "have" + rest.removeprefix("has")
        plural = noun if total_count == 1 else noun + "s"
        self.lines.append(f"{len(wrong)} of {total_count} {plural} {rest}.")

    def describe(self, key: Hashable, inputs: Sequence[object], outputs: Sequence[object]) -> None:
        """Add a description of a wrong key with its inputs and outputs to the message, unless the
        message describes enough keys already."""
        if not self._may_describe():
            return
        self.lines.append(f"key {_shown(key)}")
        for name, records in (("input ", inputs), ("output", outputs)):
            for record in records[:PLACES_MAX]:
                self._line_of(name, record)
            if len(records) > PLACES_MAX:
                self.lines.append(f"  {name}  … and {len(records) - PLACES_MAX} more")
        if inputs and not outputs:
            self.lines.append("  output  none")
        elif outputs and not inputs:
            self.lines.append("  input   none")
        self._note_events_of_key(key)

    def describe_order(
        self, key: Hashable, before: tuple[object, object], after: tuple[object, object]
    ) -> None:
        """Add a description of two outputs of a key that are in the wrong order, each with its
        position."""
        if not self._may_describe():
            return
        self.lines.append(f"key {_shown(key)}: {_shown(before[1])} is before {_shown(after[1])}")
        self._line_of("first ", before[0])
        self._line_of("second", after[0])

    def raise_if_any(self) -> None:
        """Raise CheckFailedError with this message if the check has recorded a wrong key."""
        if not self.keys:
            return
        if self._hidden_count:
            self.lines.append(f"… and {self._hidden_count} more")
        text = f"{self._check}: " + "\n  ".join(self.lines)
        story = self._story()
        raise CheckFailedError(text + story, check=self._check, keys=self.keys)

    def _may_describe(self) -> bool:
        if self._described_count and len(self.lines) >= RECORD_LINES_MAX:
            self._hidden_count += 1
            return False
        self._described_count += 1
        return True

    def _line_of(self, name: str, record: object) -> None:
        line = f"  {name}  {_shown_record(record)}"
        if isinstance(record, WrittenRecord):
            events = self._events_of(record)
            commits = self._commits_of(record)[:1]
            line += _origin(events) + _commit(commits)
            events = sorted([*events, *commits], key=lambda event: event.at_s)
            if self._described_count == 1:
                self._subjects += events
                at_s = self._written_s(record)
                self.moments += [event.at_s for event in events] or ([] if at_s is None else [at_s])
        self.lines.append(line)

    def _events_of(self, record: WrittenRecord) -> list[TimelineEvent]:
        if self._timeline is None:
            return []
        return [
            event
            for event in self._timeline
            if event.is_about(record.topic, record.partition, record.offset)
        ]

    def _commits_of(self, record: WrittenRecord) -> list[TimelineEvent]:
        """Return the timeline's events in which a group committed an offset beyond a record."""
        if self._timeline is None:
            return []
        return [
            event
            for event in self._timeline
            if event.kind == "request"
            and event.facts.get("topic") == record.topic
            and event.facts.get("partition") == record.partition
            and isinstance(committed := event.facts.get("committed"), int)
            and committed > record.offset
        ]

    def _written_s(self, record: WrittenRecord) -> float | None:
        """Return the virtual time in seconds at which a record was written, according to its
        timestamp. Returns None if the record was not written during the run."""
        if self._timeline is None or not record.timestamp_ms:
            return None
        at_s = (record.timestamp_ms - self._timeline.wall_ms) / 1_000
        return at_s if at_s >= 0 else None

    def _note_events_of_key(self, key: Hashable) -> None:
        if self._timeline is None or self._described_count != 1:
            return
        text = repr(key)
        rows = [
            event
            for event in self._timeline
            if event.kind == "store"
            and any(value == text and name.startswith("key") for name, value in event.facts.items())
        ]
        self._subjects += rows
        self.moments += [event.at_s for event in rows]

    def _story(self) -> str:
        if self._timeline is None or not len(self._timeline):
            return ""
        lines_max = LINES_MAX - 1 - len(self.lines)
        if not self.moments:
            faults = [one.at_s for one in self._timeline if one.kind in _DISTURBING_KINDS]
            if not faults:
                shown = self._timeline.as_text(lines_max=lines_max)
                return f"\nThe last events, in virtual seconds:\n{shown}"
            lines = excerpt(self._timeline, (), faults, lines_max)
            return "\n".join(["\nEvents around the faults, in virtual seconds:", *lines])
        # More than a few events of the record itself would leave no room for the faults.
        subjects = self._subjects[:3] + self._subjects[3:][-3:]
        arrow = " (→ is about the first record)" if subjects else ""
        lines = excerpt(self._timeline, subjects, self.moments, lines_max)
        return "\n".join([f"\nEvents around it, in virtual seconds{arrow}:", *lines])


def _origin(events: Sequence[TimelineEvent]) -> str:
    """Return the end of a message line about a record: the name of the instance that wrote it, and
    the time."""
    for event in events:
        is_produce = event.kind == "produce" or event.text.startswith("Produce")
        if event.where == HARNESS:
            continue
        if is_produce:
            life = event.facts.get("life")
            start = f" (start {life})" if isinstance(life, int) and life > 1 else ""
            return f", written by {printable(event.where)}{start} at {event.at_s:.3f} s"
    return ""


def _commit(events: Sequence[TimelineEvent]) -> str:
    """Return the end of a message line about a record: the name of the instance that first
    committed an offset above it."""
    return "".join(f", committed by {printable(one.where)} at {one.at_s:.3f} s" for one in events)


def _last_disturbance_s(timeline: Timeline | None, default_s: float) -> float:
    moments = [event.at_s for event in timeline or () if event.kind in _DISTURBING_KINDS]
    return max([default_s, *moments])


def _named(reading: LagReading) -> str:
    return f" {printable(reading.group)}" if reading.group else ""


def _shown(value: object) -> str:
    return printable(repr(value), VALUE_COLUMNS_MAX)


def _shown_record(record: object) -> str:
    if isinstance(record, WrittenRecord):
        key = "" if record.key is None else f"key={_shown(record.key)} "
        return f"{printable(record.place)} {key}value={_shown(record.value)}"
    return _shown(record)
