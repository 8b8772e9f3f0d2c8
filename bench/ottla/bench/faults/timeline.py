"""Timeline of a steady load, second by second: acknowledged records per partition, and the gaps
between them.

Pure: it converts a ledger into numbers, a table or a picture.
"""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from ottla.bench.faults.ledger import Answers, RunLedger

CELL_WIDTH = 9
ROW_HEIGHT = 18
LEFT = 110
TOP = 150
FLOWING = "#2ca02c"
STILL = "#d62728"
MARK = "#1f3a93"
SHADES = " ▁▂▃▄▅▆▇█"


class Mark(NamedTuple):
    """Action that disturbed the cluster during a run of the load, such as the kill of a broker."""

    at_s: float
    text: str


class Gap(NamedTuple):
    """Time between two successive acknowledgements of records in one partition."""

    seconds: float
    began_s: float


def per_second(ledger: RunLedger) -> list[list[int]]:
    """Return, for each partition, the number of records that were acknowledged in each second of
    the load's run."""
    seconds = int(ledger.ended_s - ledger.started_s) + 1
    counts = [[0] * seconds for _ in ledger.answers]
    for row, answers in zip(counts, ledger.answers, strict=True):
        for at_s in answers.at_s:
            row[int(at_s - ledger.started_s)] += 1
    return counts


def longest_gap(answers: Answers, began_s: float = 0.0, ended_s: float = float("inf")) -> Gap:
    """Return the longest time between two successive acknowledgements in one partition's `answers`
    that overlaps the given period."""
    longest = Gap(0.0, began_s)
    for before, after in zip(answers.at_s, answers.at_s[1:], strict=False):
        if after - before > longest.seconds and after >= began_s and before <= ended_s:
            longest = Gap(after - before, before)
    return longest


def as_text(ledger: RunLedger, marks: Sequence[Mark] = ()) -> str:
    """Return the timeline of a steady load as text, with one row per partition and one column per
    second."""
    counts = per_second(ledger)
    full = _full_bar(counts)
    width = max(len(str(answers.place)) for answers in ledger.answers)
    lines = []
    for answers, row in zip(ledger.answers, counts, strict=True):
        bars = "".join(
            "·" if count == 0 else SHADES[min(8, max(1, round(8 * count / full)))] for count in row
        )
        gap = longest_gap(answers).seconds
        lines.append(f"{answers.place!s:<{width}} {bars}  longest gap {gap:6.2f} s")
    for mark in marks:
        at = max(0, int(mark.at_s - ledger.started_s))
        lines.append(f"{'':<{width}} {' ' * at}^ {at} s: {mark.text}")
    return "\n".join(lines)


def as_svg(ledger: RunLedger, marks: Sequence[Mark] = (), title: str = "") -> str:
    """Return the timeline of a steady load as SVG, with one row per partition and one bar per
    second. Seconds without records are red."""
    counts = per_second(ledger)
    full = _full_bar(counts)
    seconds = max((len(row) for row in counts), default=0)
    height = TOP + ROW_HEIGHT * len(counts) + 40
    width = LEFT + CELL_WIDTH * seconds + 130
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="16" font-size="13">{escape(title)}</text>',
        f'<text x="8" y="32" fill="#666">records a second; a full bar: {full:,} or more</text>',
    ]
    for index, (answers, row) in enumerate(zip(ledger.answers, counts, strict=True)):
        parts += _row(index, answers, row, full)
    bottom = TOP + ROW_HEIGHT * len(counts)
    parts += [
        f'<text x="{LEFT + CELL_WIDTH * at}" y="{bottom + 14}" fill="#666">{at}</text>'
        for at in range(0, seconds, 5)
    ]
    for mark in marks:
        x = LEFT + CELL_WIDTH * (mark.at_s - ledger.started_s)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 4}" y2="{bottom}" stroke="{MARK}"/>'
            f'<text transform="translate({x + 3:.1f},{TOP - 8}) rotate(-35)" fill="{MARK}">'
            f"{escape(mark.text)}</text>"
        )
    parts.append("</svg>")
    return "\n".join(parts)


def _full_bar(counts: Sequence[Sequence[int]]) -> int:
    """Return the record count that fills a cell of the timeline: 1.5 times the median. A burst
    after an interruption therefore does not shrink the other bars."""
    busy = sorted(count for row in counts for count in row if count)
    return max(1, busy[len(busy) // 2] * 3 // 2) if busy else 1


def _row(index: int, answers: Answers, row: list[int], full: int) -> list[str]:
    base = TOP + ROW_HEIGHT * (index + 1) - 2
    bars = {FLOWING: "", STILL: ""}
    for second, count in enumerate(row):
        x = LEFT + CELL_WIDTH * second
        height = max(1, round((ROW_HEIGHT - 4) * min(1.0, count / full)))
        bar = f"M{x} {base}v-{height}h{CELL_WIDTH - 1}v{height}z"
        bars[FLOWING if count else STILL] += bar
    gap = longest_gap(answers).seconds
    x = LEFT + CELL_WIDTH * len(row) + 6
    return [
        f'<text x="8" y="{base - 3}">{escape(str(answers.place))}</text>',
        *(f'<path fill="{color}" d="{path}"/>' for color, path in bars.items() if path),
        f'<text x="{x}" y="{base - 3}" fill="#666">longest gap {gap:.2f} s</text>',
    ]
