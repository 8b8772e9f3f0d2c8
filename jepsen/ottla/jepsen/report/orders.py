"""Table of a partition log around the offsets of anomalies that checkers found.

The module is pure. A row is a value at an offset, with the times and processes of its send and its
first read, and the facts that contradict it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from ottla.jepsen.history import Json, Operation
from ottla.jepsen.report.markup import Markup, element
from ottla.jepsen.report.measures import LOG_OPERATIONS
from ottla.jepsen.report.page import table
from ottla.jepsen.report.words import clock_words, many, shortened

OFFSETS_MAX = 20
"""Maximum number of offsets of anomalies in one table of a log."""
CONTEXT = 1
"""Number of rows that a table of a log shows before and after each offset of an anomaly."""
ENDS_READ = 2
"""Number of records that a table shows from each end of a read. Only reads that are evidence of an
anomaly are shown."""


class KeyOrder:
    """Record values that operations sent to one key (partition) or read from the key, with their
    offsets."""

    def __init__(self, key: str, operations: Iterable[Operation], proving: set[int]) -> None:
        self.sent: dict[tuple[int, Json], Operation] = {}
        self.read: dict[tuple[int, Json], Operation] = {}
        self.reads: Counter[tuple[int, Json]] = Counter()
        self.values: dict[int, list[Json]] = {}
        self.places: dict[Json, list[int]] = {}
        self.spans: list[tuple[Operation, int, int]] = []
        """Reads of the key (partition), each with its first and last offset."""
        self.lost: list[Operation] = []
        """Sends to the key (partition) that prove an anomaly but have no known offset."""
        self.named: set[int] = set()
        """Offsets in the key (partition) of the sends that prove an anomaly. If no send proves an
        anomaly, offsets at both ends of the reads that prove one."""
        ends: set[int] = set()
        for one in operations:
            is_proof = not proving.isdisjoint((one.invoke.index, one.index))
            for micro in one.value:
                if micro[0] == "send" and micro[1] == key:
                    self._add_send(one, micro[2], is_proof)
                elif micro[0] == "poll" and len(micro) > 1 and micro[1].get(key):
                    records = micro[1][key]
                    for place in map(tuple, records):
                        if place not in self.read:
                            self._add(*place)
                            self.read[place] = one
                        self.reads[place] += 1
                    offsets = [offset for offset, _ in records]
                    self.spans.append((one, min(offsets), max(offsets)))
                    if is_proof:
                        ends |= {*offsets[:ENDS_READ], *offsets[-ENDS_READ:]}
        self.named = self.named or ends

    def _add_send(self, one: Operation, what: Json, is_proof: bool) -> None:
        offset, value = what if isinstance(what, list) else (None, what)
        if offset is not None:
            self._add(offset, value)
            self.sent.setdefault((offset, value), one)
            self.named |= {offset} if is_proof else set()
        elif is_proof:
            self.lost.append(one)

    def _add(self, offset: int, value: Json) -> None:
        values = self.values.setdefault(offset, [])
        if value not in values:
            values.append(value)
            self.places.setdefault(value, []).append(offset)

    def odd_offsets(self) -> Sequence[int]:
        """Return the suspicious offsets of the key (partition). These are offsets with two
        different values, both offsets of a value that occurs twice, and offsets in a checker's
        anomalies."""
        odd = {offset for offset, values in self.values.items() if len(values) > 1}
        odd.update(o for offsets in self.places.values() if len(offsets) > 1 for o in offsets)
        return sorted(odd | self.named)

    def remark(self, offset: int, value: Json) -> str:
        """Return a remark on observations that contradict a record value at an offset, or "" if no
        observation does."""
        remarks = []
        if self.values[offset][0] != value:
            remarks.append(f"contradicts {shortened(str(self.values[offset][0]), 40)}")
        others = [str(place) for place in self.places[value] if place != offset]
        if others:
            remarks.append(f"also at {', '.join(others[:5])}")
        if (offset, value) not in self.read:
            past = next((one for one, low, high in self.spans if low < offset < high), None)
            remarks.append(f"never read{f', read past {_who(past)}' if past else ''}")
        return "; ".join(remarks)


def by_answer(operations: Iterable[Operation]) -> Sequence[Operation]:
    """Return the sends and polls of a run in the order of their responses."""
    on_logs = (one for one in operations if one.invoke.f in LOG_OPERATIONS)
    return sorted((one for one in on_logs if isinstance(one.value, list)), key=_answered_ns)


def log_table(key: str, operations: Iterable[Operation], proving: set[int]) -> Markup | None:
    """Return the table of a key's (partition's) log with its title, or None if the key has no
    suspicious offset. `proving` contains the indexes of events that prove anomalies."""
    log = KeyOrder(key, operations, proving)
    odd = log.odd_offsets()
    if not odd and not log.lost:
        return None
    near = {o + d for o in odd[:OFFSETS_MAX] for d in range(-CONTEXT, CONTEXT + 1)}
    rows = []
    for offset in sorted(near & log.values.keys()):
        for value in log.values[offset]:
            place = offset, value
            remark = log.remark(offset, value)
            rows.append(
                (
                    str(offset),
                    element("b", shortened(str(value), 40), class_="bad" if remark else None),
                    _who(log.sent[place]) if place in log.sent else "–",
                    _who(log.read[place]) if place in log.read else "–",
                    str(log.reads[place]),
                    remark,
                )
            )
    more = [f"{many(len(odd) - OFFSETS_MAX, 'more offset')} left out."]
    lost = [f"Sent to an unknown offset: {', '.join(map(_who, log.lost))}."]
    return element(
        "details",
        element("summary", f"The log of {key} around {many(len(odd), 'offset')} of findings"),
        table(("offset", "value", "sent", "first read", "reads", "remark"), rows),
        *(element("p", words) for words in more * (len(odd) > OFFSETS_MAX) + lost * bool(log.lost)),
    )


def _who(one: Operation) -> str:
    return f"{clock_words(_answered_ns(one) / 1e9)} by {one.invoke.process} (event {one.index})"


def _answered_ns(one: Operation) -> int:
    return (one.completion or one.invoke).time_ns
