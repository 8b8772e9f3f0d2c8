"""The tables of docs/performance.md, generated from stored values.  Pure.

The page's prose is written by hand. Only the text between two marks is generated.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.bench.floor.floor import FLOOR
from ottla.bench.kafka.comparison import (
    OURS,
    THEIRS,
    FigureVerdict,
    Spread,
    spread_of,
    verdict_of,
)
from ottla.bench.performance.performance import CLIENT_BROKER, LIBRDKAFKA, MeasuredGroup
from ottla.bench.performance.performance_rows import GOALS, ONE, THREE, RatioGoal
from ottla.model.errors import ConfigError

BEGIN = "<!-- measured: begin; made by 'ottla bench performance', do not edit -->"
END = "<!-- measured: end -->"
MEASURED_ON = "Measured on"
"""Start of the line with the date and the machine of a measurement."""
FURTHER_ROWS = "Further rows, without goals"
TOPOLOGIES = {
    "one": "One broker, one replica",
    "three": "Three controllers and three brokers, three replicas",
}
GROUPS = {
    "requests": "Small requests",
    "throughput": "Throughput",
    "latency": "Latency, one record at a time",
    "rates": "Latency at shares of the rate that all servers sustain",
    "partitions": "Many partitions",
    "connections": "Many clients",
    "programs": "Programs of other makers, with their default settings",
    "conditions": "Under quotas, and beside a compaction",
    "memory": "Memory and idle CPU of all nodes",
    "lifecycle": "Start and deaths",
    "admin": "Topics created and deleted at once",
    "queues": "Share groups: consume and acknowledge",
    "client": "The client",
}
UNITS = {
    "requests_per_second": "requests/s",
    "cpu_us_per_request": "CPU µs each",
    "mb_per_second": "MB/s",
    "cpu_s_per_gb": "CPU s/GB",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    **{
        f"{what}_{percentile}_ms": f"{words}, {percentile} ms"
        for what, words in (("produce", "produce"), ("end_to_end", "end to end"))
        for percentile in ("p50", "p99", "p99.9")
    },
    "end_to_end_mean_ms": "end to end, mean ms",
    "shared_once_mb": "MB, shared pages once",
    "resident_mb": "MB, resident",
    "idle_cpu_ms_per_second": "CPU ms each second, without load",
    "start_to_ready_s": "start to ready, s",
    "broker_killed_to_acknowledged_s": "broker killed to first acknowledged record, s",
    "controller_killed_to_topic_created_s": "controller killed to first topic created, s",
    "create_s": "create, s",
    "delete_s": "delete, s",
    "cpu_us_per_record": "CPU µs a record",
    "records_per_second": "records/s",
    "thread_share": "CPU of the application's thread ÷ time",
}
PICTURES = {
    "requests": ("performance-requests.svg", "CPU of a small request, by kind and server"),
    "throughput": ("performance-throughput.svg", "Throughput by size of batches"),
    "memory": ("performance-memory.svg", "Memory of all nodes, by server"),
    "latency": ("performance-latency.svg", "Latency of one record, end to end"),
    "lifecycle": ("performance-lifecycle.svg", "Start, and what clients wait after a death"),
}
TOPOLOGY_OF = {"lifecycle": THREE}
"""Cluster topology whose measured values are plotted, by group of benchmarks. For all other groups,
the values of a single broker are plotted."""


UNDECIDED = " ?"
"""Suffix of a ratio on the page whose difference from 1 is not significant."""


def base_of(group: str) -> str:
    """Return the baseline column of a group's table. Ratios divide the values of the other columns
    by the values of this column."""
    return LIBRDKAFKA if group == "client" else THEIRS


def measured_of(page: str) -> str:
    """Return the part of the page between the marks. Raises ConfigError if the page has no
    marks."""
    _, begin, rest = page.partition(BEGIN)
    measured, end, _ = rest.partition(END)
    if not begin or not end:
        raise ConfigError("--page", f"names a page without the lines {BEGIN!r} and {END!r}")
    return measured.strip()


def with_measured(page: str, measured: str) -> str:
    """Return the page with its part between the marks replaced by `measured`.

    Raises ConfigError if the page has no marks.
    """
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{measured.strip()}\n\n{END}{rest.partition(END)[2]}"


def measured_part(
    sittings: Sequence[MeasuredGroup],
    pictures: Mapping[str, str],
    reports: Sequence[Mapping[str, Any]] = (),
    earlier: str = "",
) -> str:
    """Return the tables of the page: first of all stored groups of benchmarks, then of other
    comparisons with Kafka, which have no goals.

    `pictures` maps groups to the file names of their plots. `earlier` is the page's present part.
    Its sections remain if nothing is stored for them, each with the date of its measurement.
    """
    lines = [_where(sittings), ""]
    kept = _sections(earlier)
    by_group = {(one.topology, one.group): one for one in sittings}
    for topology, title in TOPOLOGIES.items():
        sections: list[str] = []
        for group, heading in GROUPS.items():
            sitting = by_group.get((topology, group))
            if sitting is not None:
                picture = None
                if topology == TOPOLOGY_OF.get(group, ONE):
                    picture = pictures.get(group)
                shown_by = [f"![{PICTURES[group][1]}]({picture})", ""] if picture else []
                sections += [f"### {heading}", "", *shown_by, *_table(sitting), ""]
            elif (title, heading) in kept:
                sections += [f"### {heading}", "", *kept[title, heading], ""]
        lines += [f"## {title}", "", *sections] if sections else []
    others = {
        heading: section for (title, heading), section in kept.items() if title == FURTHER_ROWS
    }
    others |= {str(report["what"]).capitalize(): _report_table(report) for report in reports}
    lines += [f"## {FURTHER_ROWS}", ""] if others else []
    for heading, section in others.items():
        lines += [f"### {heading}", "", *section, ""]
    return "\n".join(lines)


def _sections(measured: str) -> dict[tuple[str, str], list[str]]:
    """Return the lines of each section of a measured part, by the titles of chapter and section.
    The first line of a section names the date and the machine of its measurement."""
    found: dict[tuple[str, str], list[str]] = {}
    where = chapter = ""
    section: list[str] | None = None
    for line in measured.splitlines():
        if line.startswith("### "):
            section = found[chapter, line.removeprefix("### ")] = []
        elif line.startswith("## "):
            chapter, section = line.removeprefix("## "), None
        elif section is not None:
            section.append(line)
        elif line.startswith(MEASURED_ON):
            where = line
    for key, lines in found.items():
        text = "\n".join(lines).strip().splitlines()
        is_dated = any(line.startswith(MEASURED_ON) for line in text)
        found[key] = text if is_dated else [where, "", *text]
    return found


def _report_table(report: Mapping[str, Any]) -> list[str]:
    lines = [_line(["row", "figure", "Ottla", "Ottla ÷ Kafka", "Kafka"]), _line(["---"] * 5)]
    for row in report["rows"]:
        ratio = "–" if row["ratio"] is None else f"{row['ratio']:.2f}"
        mark = UNDECIDED if row["verdict"] == FigureVerdict.UNDECIDED else ""
        ours, theirs = shown(Spread(**row[OURS])), shown(Spread(**row[THEIRS]))
        lines.append(_line([row["row"], row["figure"], ours, ratio + mark, theirs]))
    return lines


def _where(sittings: Sequence[MeasuredGroup]) -> str:
    dates = sorted({str(one.machine["date"]) for one in sittings})
    machine = sittings[0].machine
    days = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    forms = {
        label: form for one in sittings for label, form in one.machine.get("forms", {}).items()
    }
    columns = "".join(f" {label_of(label)}: {form}." for label, form in forms.items())
    return (
        f"{MEASURED_ON} {days}: {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, Linux {machine['kernel']}; Python {machine['python']}; "
        f"Apache Kafka {machine['kafka']}.{columns}"
    )


def _table(sitting: MeasuredGroup) -> list[str]:
    base = base_of(sitting.group)
    columns = _servers(sitting)
    others = [name for name in columns if name not in (base, FLOOR)]
    has_floor = FLOOR in columns
    head = ["row", "figure"]
    for name in others:
        head += [label_of(name), f"÷ {label_of(base)}", *(["× floor"] if has_floor else [])]
    head += [label_of(base), *(["floor"] if has_floor else []), "goal"]
    lines = [_line(head), _line(["---"] * len(head))]
    for row, figures in sitting.values.items():
        for figure, servers in figures.items():
            goal = GOALS[sitting.group][figure]
            theirs = spread_of(servers[base]) if base in servers else None
            cells = [row, UNITS[figure]]
            for name in others:
                mine = spread_of(servers[name]) if name in servers else None
                cells += [shown(mine), ratio_cell(servers.get(name), servers.get(base), goal)]
                if has_floor:
                    cells.append(times_floor(servers.get(name), servers.get(FLOOR), goal))
            cells.append(shown(theirs))
            if has_floor:
                cells.append(shown(spread_of(servers[FLOOR])) if FLOOR in servers else shown(None))
            lines.append(_line([*cells, str(goal)]))
    if CLIENT_BROKER in sitting.machine:
        label = str(sitting.machine[CLIENT_BROKER])
        lines += ["", f"One broker serves all clients: that of the column {label_of(label)}."]
    return lines


def _servers(sitting: MeasuredGroup) -> list[str]:
    names = dict.fromkeys(
        name for row in sitting.values.values() for servers in row.values() for name in servers
    )
    return [OURS, *(name for name in names if name not in (OURS, base_of(sitting.group)))] + (
        [base_of(sitting.group)] if base_of(sitting.group) in names else []
    )


def label_of(server: str) -> str:
    """Return the title of a server's column on the performance page."""
    return {OURS: "Ottla", THEIRS: "Kafka"}.get(server, server)


def ratio_cell(
    mine: Sequence[float] | None, theirs: Sequence[float] | None, goal: RatioGoal
) -> str:
    """Return the ratio of two medians as text for a table cell. It is bold if it meets the goal,
    and has a question mark if the difference is not significant."""
    if mine is None or theirs is None or not spread_of(theirs).median:
        return "–"
    ratio = spread_of(mine).median / spread_of(theirs).median
    text = f"**{ratio:.2f}**" if goal.is_met_by(ratio) else f"{ratio:.2f}"
    verdict = verdict_of(mine, theirs, is_higher_better=goal.is_higher_better)
    return text + UNDECIDED if verdict is FigureVerdict.UNDECIDED else text


def times_floor(
    mine: Sequence[float] | None, floor: Sequence[float] | None, goal: RatioGoal
) -> str:
    """Return the factor by which a server is slower or costlier than the floor program, as text for
    a table cell. The floor program is the smallest program with the same system calls."""
    if mine is None or floor is None:
        return "–"
    cost, least = spread_of(mine).median, spread_of(floor).median
    if goal.is_higher_better:
        cost, least = least, cost
    return f"{cost / least:.2f}" if least else "–"


def shown(spread: Spread | None) -> str:
    """Return the median of measured values with the lowest and highest value as text, or a dash if
    nothing was measured."""
    if spread is None:
        return "–"
    if spread.lowest == spread.highest:
        return _number(spread.median)
    return f"{_number(spread.median)} ({_number(spread.lowest)}–{_number(spread.highest)})"


def _number(value: float) -> str:
    if value >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def missed(sittings: Sequence[MeasuredGroup], server: str = OURS) -> list[str]:
    """Return one line of text for each goal that a server misses. Each line contains the measured
    ratio: the server's median, divided by the median of the server that it is compared with."""
    found = []
    for sitting in sittings:
        base = base_of(sitting.group)
        for row, figures in sitting.values.items():
            for figure, servers in figures.items():
                if server in servers and base in servers:
                    theirs = spread_of(servers[base]).median
                    ratio = spread_of(servers[server]).median / theirs if theirs else 0.0
                    goal = GOALS[sitting.group][figure]
                    if goal.ratio is not None and not goal.is_met_by(ratio):
                        found.append(
                            f"{sitting.topology}: {row}, {UNITS[figure]}: {ratio:.2f} ({goal})"
                        )
    return found
