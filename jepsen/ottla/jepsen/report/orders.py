"""orders/KEY: what was where in the log of one key, and what went wrong there.

Pure.  Above, all offsets over time: a log that loses its end falls.  Below, a grid of the offsets
that findings are about: a column is an operation, a cell the value it put or saw at an offset;
cells that disagree with the first value seen there, or whose value has two places, are red.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from ottla.jepsen.history import Json, Kind, Operation
from ottla.jepsen.report.faults import Fault
from ottla.jepsen.report.frame import Key, Panel, Picture, Scale, text, time_picture
from ottla.jepsen.report.markup import Markup, element, joined
from ottla.jepsen.report.measures import LOG_OPERATIONS
from ottla.jepsen.report.scales import Linear, clock_words, linear_ticks
from ottla.jepsen.report.words import many, operation_words, outcome_words, shortened

ODD_ROWS_MAX = 20
COLUMNS_MAX = 22
PASSING_READS = 2
"""Of a value that nobody read, so many reads are shown that passed its offset."""
CONTEXT_ROWS = 2
"""Offsets shown before and after one that is odd."""
ENDS_READ = 2
"""Of a read that proves something, so many records at its beginning and its end make rows."""
CELL_WIDTH, CELL_HEIGHT = 44, 19
GRID_LEFT = 96
HEAD_HEIGHT = 138


@dataclass(frozen=True, slots=True)
class Touch:
    """What one operation said of the key: values by offset."""

    operation: Operation
    is_send: bool
    values: Mapping[int, Json]
    unplaced: tuple[Json, ...] = ()
    """Values sent without an offset being known."""

    @property
    def at_ns(self) -> int:
        """Return when it was known."""
        ended = self.operation.completion
        return self.operation.invoke.time_ns if ended is None else ended.time_ns


def order(
    key: str,
    operations: Sequence[Operation],
    proving: Iterable[int],
    faults: Sequence[Fault],
    end_s: float,
) -> Picture | None:
    """Draw the log of a key; None when nobody sent to it or read it."""
    touches = sorted(touches_of(key, operations), key=lambda touch: touch.at_ns)
    placed = [touch for touch in touches if touch.values]
    if not placed:
        return None
    proving = set(proving)
    known = values_at(touches)
    odd = odd_offsets(touches, proving, known)
    overview = _overview(key, placed, odd, proving, faults, end_s)
    grid, height = _grid(touches, odd, proving, known)
    below = element("g", grid, transform=f"translate(0 {overview.height + 10})")
    return replace(
        overview, height=overview.height + 10 + height, body=joined([overview.body, below])
    )


def touches_of(key: str, operations: Iterable[Operation]) -> Iterable[Touch]:
    """Yield each operation's sends to and polls of a key, apart from each other."""
    for operation in operations:
        if operation.invoke.f not in LOG_OPERATIONS or not isinstance(operation.value, list):
            continue
        sent: dict[int, Json] = {}
        unplaced: list[Json] = []
        read: dict[int, Json] = {}
        for micro in operation.value:
            if micro[0] == "send" and micro[1] == key:
                offset, value = micro[2] if isinstance(micro[2], list) else (None, micro[2])
                if offset is None:
                    unplaced.append(value)
                else:
                    sent[offset] = value
            elif micro[0] == "poll" and len(micro) > 1:
                read.update((offset, value) for offset, value in micro[1].get(key, ()))
        if sent or unplaced:
            yield Touch(operation, True, sent, tuple(unplaced))
        if read:
            yield Touch(operation, False, read)


def values_at(touches: Iterable[Touch]) -> Mapping[int, Sequence[Json]]:
    """Return, by offset, the different values said to be there, the first one first."""
    found: dict[int, list[Json]] = {}
    for touch in touches:
        for offset, value in touch.values.items():
            said = found.get(offset)
            if said is None:
                found[offset] = [value]
            elif value not in said:
                said.append(value)
    return found


def odd_offsets(
    touches: Sequence[Touch], proving: set[int], known: Mapping[int, Sequence[Json]]
) -> set[int]:
    """Return offsets with two values, of values with two offsets, and of proving operations."""
    odd = {offset for offset, values in known.items() if len(values) > 1}
    for offsets in places_of_values(known).values():
        if len(offsets) > 1:
            odd |= set(offsets)
    read: set[int] = set()
    for touch in touches:
        if _proves(touch, proving):
            offsets_said = sorted(touch.values)
            if touch.is_send:
                odd |= set(offsets_said)
            else:
                read |= {*offsets_said[:ENDS_READ], *offsets_said[-ENDS_READ:]}
    # What a read began and ended with matters when nothing else is wrong: it skipped or went back.
    return odd or read


def places_of_values(known: Mapping[int, Sequence[Json]]) -> Mapping[Json, Sequence[int]]:
    """Return, by value, the offsets where it was said to be."""
    places: dict[Json, list[int]] = {}
    for offset, values in known.items():
        for value in values:
            places.setdefault(value, []).append(offset)
    return places


def _proves(touch: Touch, proving: set[int]) -> bool:
    return touch.operation.invoke.index in proving or touch.operation.index in proving


def _overview(
    key: str,
    placed: Sequence[Touch],
    odd: set[int],
    proving: set[int],
    faults: Sequence[Fault],
    end_s: float,
) -> Picture:
    offsets = [offset for touch in placed for offset in touch.values]
    low, high = float(min(offsets)), float(max(max(offsets), min(offsets) + 1))

    def draw(x: Linear, y: Scale) -> Iterable[Markup]:
        for is_send, classes in ((False, "dots rest"), (True, "dots ok")):
            places: set[tuple[int, int]] = set()
            for touch in placed:
                if touch.is_send is is_send:
                    px = round(x(touch.at_ns / 1e9))
                    places.update((px, round(y(offset))) for offset in touch.values)
            d = "".join(f"M{px} {py}h0" for px, py in sorted(places))
            yield element("path", d=d, class_=classes)
        marked = {
            (round(x(touch.at_ns / 1e9) / 3) * 3, round(y(offset) / 3) * 3)
            for touch in placed
            for offset in touch.values
            if offset in odd and (touch.is_send or _proves(touch, proving))
        }
        rings = (f"M{px - 4} {py}a4 4 0 1 0 8 0a4 4 0 1 0-8 0" for px, py in sorted(marked))
        yield element("path", d="".join(rings), class_="shape mark")

    return time_picture(
        key,
        f"The log of {key}",
        "Offsets over time: when a send was acknowledged at an offset, and when it was read. "
        "Offsets of findings are ringed, and shown one by one below.",
        faults=faults,
        end_s=end_s,
        panels=[
            Panel(
                name="offset",
                unit="",
                low=low,
                high=high,
                ticks=linear_ticks(low, high),
                draw=draw,
                height=220,
            )
        ],
        legend=[
            Key("dots ok", "sent"),
            Key("dots rest", "read"),
            Key("shape mark", "of a finding"),
        ],
    )


def _grid(
    touches: Sequence[Touch], odd: set[int], proving: set[int], known: Mapping[int, Sequence[Json]]
) -> tuple[Markup, int]:
    rows, columns = grid_of(touches, odd, proving)
    parts = [
        text("Offset by offset", 0, 16, "title"),
        text(
            "Columns are operations in the order in which they ended. Blue was sent, the rest was "
            "read; red disagrees. A dot: it read on beyond this offset without this offset.",
            0,
            34,
            "muted",
        ),
    ]
    top = 40 + HEAD_HEIGHT
    for number, touch in enumerate(columns):
        parts.append(_head(touch, GRID_LEFT + number * CELL_WIDTH, top, _proves(touch, proving)))
    twice = {value for value, at in places_of_values(known).items() if len(at) > 1}
    before: int | None = None
    y = top
    for offset in rows:
        if before is not None and offset != before + 1:
            parts.append(text("⋮", GRID_LEFT - 14, y + 11, "muted end"))
            y += 14
        parts.append(
            text(f"{offset}", GRID_LEFT - 10, y + 14, "end bad" if offset in odd else "end muted")
        )
        for number, touch in enumerate(columns):
            cell = _cell(
                touch,
                offset,
                known.get(offset, [None])[0],
                twice,
                GRID_LEFT + number * CELL_WIDTH,
                y,
            )
            parts.append(cell)
        before, y = offset, y + CELL_HEIGHT
    y += 8
    lost = [
        f"{value} by process {t.operation.invoke.process}" for t in columns for value in t.unplaced
    ]
    notes = [f"Sent, offset unknown: {shortened(', '.join(lost), 150)}."] if lost else []
    left_out = len(odd - set(rows))
    if left_out:
        notes.append(f"{many(left_out, 'more offset')} of findings left out.")
    for note in notes:
        y += 16
        parts.append(text(note, 0, y, "muted"))
    return joined(parts), y + 12


def grid_of(
    touches: Sequence[Touch], odd: set[int], proving: set[int]
) -> tuple[Sequence[int], Sequence[Touch]]:
    """Return the offsets and the operations to show, so that each offset shown is told wholly.

    Offset by offset, from the first odd one on, with what first sent and first read each value
    there, as long as there is room for both.
    """
    told: dict[int, dict[tuple[bool, Json], int]] = {offset: {} for offset in odd}
    for place, touch in enumerate(touches):
        for offset in odd & touch.values.keys() if len(touch.values) > len(odd) else touch.values:
            if offset in odd:
                told[offset].setdefault((touch.is_send, touch.values[offset]), place)
    rows: list[int] = []
    places = {place for place, touch in enumerate(touches) if _proves(touch, proving) and not odd}
    # What was sent to no known place is a finding's part that no offset leads to.
    places |= {p for p, touch in enumerate(touches) if touch.unplaced and _proves(touch, proving)}
    places = set(sorted(places)[: COLUMNS_MAX // 2])
    for offset in sorted(odd):
        grown = places | set(told[offset].values())
        if not any(not is_send for is_send, _ in told[offset]):
            grown |= set(_passing(touches, offset))
        if rows and (len(grown) > COLUMNS_MAX or len(rows) >= ODD_ROWS_MAX):
            break
        places = set(sorted(grown)[:COLUMNS_MAX])
        rows.append(offset)
    columns = [touches[place] for place in sorted(places)]
    near = {o + d for o in rows for d in range(-CONTEXT_ROWS, CONTEXT_ROWS + 1)}
    seen = {offset for touch in columns for offset in near & touch.values.keys()}
    return sorted({*rows, *seen}), columns


def _passing(touches: Sequence[Touch], offset: int) -> Sequence[int]:
    """Return the places of the first reads that went on beyond an offset without seeing it."""
    places = (
        place
        for place, touch in enumerate(touches)
        if not touch.is_send and min(touch.values) < offset < max(touch.values)
    )
    return list(islice(places, PASSING_READS))


def _head(touch: Touch, left: int, bottom: int, proves: bool) -> Markup:
    operation = touch.operation
    what = "sent" if touch.is_send else "read"
    words = f"{clock_words(touch.at_ns / 1e9)} {what} by {operation.invoke.process}"
    if operation.kind is not Kind.OK:
        words += f" ({operation.kind.value})"
    x, y = left + CELL_WIDTH / 2 + 4, bottom - 6
    return element(
        "text",
        element("title", f"{operation_words(operation)}\n{outcome_words(operation)}"),
        words,
        transform=f"translate({x:g} {y}) rotate(-90)",
        class_="bad" if proves else None if touch.is_send else "muted",
    )


def _cell(touch: Touch, offset: int, first: Json, twice: set[Json], left: int, top: int) -> Markup:
    if offset in touch.values:
        value = touch.values[offset]
        is_bad = value != first or value in twice
        words = shortened(str(value), 7)
    else:
        is_bad = False
        # Beyond this offset on both sides: it was read over.
        is_between = bool(touch.values) and min(touch.values) < offset < max(touch.values)
        words, value = ("·", None) if is_between and not touch.is_send else ("", None)
    if not words:
        return Markup("")
    classes = "middle strong fok" if touch.is_send and value is not None else "middle"
    box = element(
        "rect",
        x=left + 1,
        y=top + 1,
        width=CELL_WIDTH - 2,
        height=CELL_HEIGHT - 2,
        rx=3,
        class_="badcell" if is_bad else "cell",
    )
    if is_bad:
        classes = "middle strong bad"
    return joined([box, text(words, left + CELL_WIDTH / 2, top + 14, classes)])
