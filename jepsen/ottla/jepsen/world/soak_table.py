"""Builds the table of the results of a soak (a long search for bugs with all engines): as text, as
JSON, and as a section of the docs.

Every number is a sum over the outcomes of the runs. If a subject cannot count something, its cell
is empty, which does not mean 0. Rates are per second of one core's CPU time, so other work on the
machine does not change them.
"""

from collections.abc import Sequence
from typing import Any

from ottla.jepsen.world.engine import COMMON_FIGURES
from ottla.jepsen.world.report import command_of
from ottla.jepsen.world.soak import Soak, SubjectRow

HEADERS = (
    "engine",
    "schedules",
    "events",
    "simulated s",
    *COMMON_FIGURES,
    "violations",
    "rare states",
    "schedules/s",
    "events/s",
    "simulated s/s",
)
NONE = "–"
COMMANDS_MAX = 10
"""Maximum number of violations of each subject for which the soak's table lists reproducing
commands. All violations are counted."""


def facts_of(soak: Soak) -> dict[str, Any]:
    """Return all results of a soak, as values that can be written as JSON."""
    rows = [_facts(row) for row in soak.rows]
    return {
        "seed": soak.first_seed,
        "processes": soak.processes,
        "seconds": round(soak.seconds, 1),
        "seconds_wanted": soak.seconds_max,
        "is_stopped_early": soak.is_stopped,
        "core_seconds": round(sum(row.totals.cpu_seconds for row in soak.rows), 1),
        "rows": rows,
        "totals": _totals(rows),
        "kept": [
            {
                "engine": one.engine,
                "subject": one.subject,
                "seed": one.seed,
                "invariant": one.invariant,
                "detail": one.detail,
                "is_small": one.is_small,
                "path": one.path,
            }
            for one in soak.kept
        ],
        "lost": soak.lost,
    }


def cells_of(facts: dict[str, Any]) -> list[list[str]]:
    """Return the rows of the table of a soak's results. Each row is a list of texts, with the
    columns `HEADERS`."""
    rows = facts["rows"]
    lines = [[f"{row['engine']} {row['subject']}", *_cells(row)] for row in rows]
    return [*lines, ["all", *_cells(facts["totals"])]]


def words_of(facts: dict[str, Any]) -> str:
    """Return one sentence with the duration of a soak (long search) and the violations that it
    found."""
    minutes, core_minutes = facts["seconds"] / 60, facts["core_seconds"] / 60
    count = facts["totals"]["violations"]
    seeds = f"seeds from {facts['seed']} on"
    found = "no violation" if count == 0 else f"{count:,} violation{'s' if count > 1 else ''}"
    early = ", stopped early" if facts["is_stopped_early"] else ""
    return (
        f"{minutes:.1f} minutes on {facts['processes']} processes{early}, "
        f"{core_minutes:.1f} minutes of one core's time, {seeds}: {found}."
    )


def notes_of(facts: dict[str, Any]) -> list[str]:
    """Return notes on results of a soak (long search for bugs) that its table does not show:
    violations, rare states that were not reached, and other counts."""
    notes: list[str] = []
    for row in facts["rows"]:
        name = f"{row['engine']} {row['subject']}"
        for invariant, count in row["broken"].items():
            notes.append(
                f"{name}: {invariant} broke in {count:,} of {row['schedules']:,} schedules"
            )
        notes += [f"{name}: `{one['command']}`: {one['invariant']}" for one in row["failures"]]
        if row["schedules"] and row["rare_missed"]:
            notes.append(f"{name} never reached: {', '.join(row['rare_missed'])}")
    for one in facts["kept"]:
        size = "made small" if one["is_small"] else "as it was"
        notes.append(f"{one['invariant']}, {size}: `ottla world replay {one['path']}`")
    notes += [f"nothing is known of {lost}" for lost in facts["lost"]]
    for row in facts["rows"]:
        besides = [
            f"{count:,} {name}"
            for name, count in row["figures"].items()
            if name not in COMMON_FIGURES
        ]
        if besides:
            notes.append(f"{row['engine']} {row['subject']} besides: {', '.join(besides)}")
    return notes


def markdown_of(facts: dict[str, Any]) -> str:
    """Return the table of a soak's results and the notes on them as a section of a Markdown
    page."""
    lines = [words_of(facts), "", _line(HEADERS), _line(["---"] + ["---:"] * (len(HEADERS) - 1))]
    lines += [_line(cells) for cells in cells_of(facts)]
    notes = [f"- {note}" for note in notes_of(facts)]
    return "\n".join([*lines, "", *notes, ""] if notes else [*lines, ""])


def _facts(row: SubjectRow) -> dict[str, Any]:
    job, totals = row.job, row.totals
    missed = totals.missed(row.required)
    cpu_seconds = max(1e-6, totals.cpu_seconds)
    return {
        "engine": job.engine,
        "subject": job.subject,
        "percent": row.percent,
        "schedules": totals.run_count,
        "events": totals.event_count,
        "sim_s": round(totals.sim_ms / 1000, 1) if totals.sim_ms else None,
        **{_key(name): totals.figures.get(name) for name in COMMON_FIGURES},
        "violations": totals.violation_count,
        "rare_reached": len(row.required) - len(missed),
        "rare_required": len(row.required),
        "schedules_per_s": totals.run_count / cpu_seconds,
        "events_per_s": totals.event_count / cpu_seconds,
        "sim_s_per_s": totals.sim_ms / 1000 / cpu_seconds if totals.sim_ms else None,
        "core_seconds": round(totals.cpu_seconds, 1),
        "busy_seconds": round(totals.busy_seconds, 1),
        "figures": dict(sorted(totals.figures.items())),
        "rare": dict(sorted(totals.rare.items())),
        "rare_missed": missed,
        "broken": dict(sorted(totals.broken.items())),
        "trace_hash": totals.trace_hash,
        "failures": [
            {
                "seed": outcome.seed,
                "invariant": outcome.violation.invariant,
                "detail": outcome.violation.detail,
                "command": command_of(job, outcome.seed),
            }
            for outcome in totals.failures[:COMMANDS_MAX]
            if outcome.violation is not None
        ],
    }


def _totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the last row of a soak's table, with the sums of all rows. Rates are left out, because
    rates of different subjects cannot be added."""
    names = ["schedules", "events", "sim_s", *map(_key, COMMON_FIGURES)]
    names += ["violations", "rare_reached", "rare_required"]
    totals: dict[str, Any] = {name: sum(row[name] or 0 for row in rows) for name in names}
    rates = ("schedules_per_s", "events_per_s", "sim_s_per_s")
    return {**totals, **dict.fromkeys(rates)}


def _key(figure: str) -> str:
    return figure.lower().replace(" ", "_")


def _cells(facts: dict[str, Any]) -> list[str]:
    cells = [_shown(facts[name]) for name in ("schedules", "events", "sim_s")]
    cells += [_shown(facts[_key(name)]) for name in COMMON_FIGURES]
    cells.append(_shown(facts["violations"]))
    required = facts["rare_required"]
    cells.append(f"{facts['rare_reached']} of {required}" if required else NONE)
    return cells + [_rate(facts[f"{name}_per_s"]) for name in ("schedules", "events", "sim_s")]


def _shown(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}"


def _rate(value: float | None) -> str:
    """Return a rate as text, with three significant digits or as an integer."""
    if value is None:
        return NONE
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
