"""Writes the pages and plots of a run, and the matrix of a store.

Only this module of the package accesses files. It reads history.jsonl, test.json and results.json,
any of which may be missing, and writes its files to the same directory. Each file is written
atomically and needs no network.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ottla.jepsen.history import History, Json
from ottla.jepsen.report.faults import faults_of
from ottla.jepsen.report.figures import can_draw, run_plots
from ottla.jepsen.report.linear import order_table
from ottla.jepsen.report.markup import Markup
from ottla.jepsen.report.matrix import StoredRun, matrix_page
from ottla.jepsen.report.orders import by_answer, log_table
from ottla.jepsen.report.run_files import RunFiles
from ottla.jepsen.report.run_page import RunParts, run_page
from ottla.jepsen.report.timeline import timeline
from ottla.model.garbage import collection_paused

KEYS_MAX = 16
"""Maximum number of keys (partitions) with anomalies for which a run's page has a table."""
OWN_FILES = re.compile(r"(index|timeline)\.html|.*\.svg|(orders|linear)/.*")
RUN_FILES = ("results.json", "test.json")


def write_report(run_directory: Path, history: History | None = None) -> Path:
    """Write the pages and plots of a run into its directory. Returns the path of its index.html.

    A caller that already has the history passes it, so that history.jsonl is not read again.
    """
    with collection_paused():
        if history is None:
            history = _read_history(run_directory / "history.jsonl")
        return _write_report(run_directory, history)


def _write_report(run_directory: Path, history: History) -> Path:
    files, faults = _run_files(run_directory), faults_of(history)
    figures = {k: v for verdict in files.verdicts for k, v in verdict.figures.items()}
    plots = run_plots(history, figures, faults) if can_draw() else None
    for plot in plots or ():
        _write(run_directory / f"{plot.name}.svg", plot.file_text())
    proving = {index for _, finding in files.findings for index in finding.operations}
    page = timeline(history, faults, title=files.title, proving=proving)
    _write(run_directory / "timeline.html", page)
    parts = RunParts(
        files=files,
        history=history,
        faults=faults,
        plots=plots,
        key_tables=_key_tables(files, history),
        other_files=_other_files(run_directory),
    )
    _write(run_directory / "index.html", run_page(parts))
    return run_directory / "index.html"


def _key_tables(files: RunFiles, history: History) -> Sequence[Markup]:
    proving: dict[str, set[int]] = {}
    for _, finding in files.findings:
        if finding.key is not None:
            proving.setdefault(finding.key, set()).update(finding.operations)
    operations = by_answer(history.operations()) if proving else ()
    keys = list(proving.items())[:KEYS_MAX]
    tables = [log_table(key, operations, indexes) for key, indexes in keys]
    orders = [order_table(name, search) for name, search in files.searches.items()]
    return [*filter(None, tables), *orders]


def write_matrix(store_directory: Path) -> Path:
    """Write the page with all runs of a store into its directory. Returns the path of the page."""
    runs = []
    found = {path.parent for name in RUN_FILES for path in store_directory.glob(f"*/*/{name}")}
    for directory in sorted(found):
        # A link such as "latest" leads to a run that is listed already.
        if directory.is_symlink() or directory.parent.is_symlink():
            continue
        is_finished = (directory / "results.json").exists()
        path = directory.relative_to(store_directory).as_posix()
        runs.append(StoredRun(_run_files(directory), path, is_finished))
    index = store_directory / "index.html"
    _write(index, matrix_page(runs))
    return index


def _run_files(directory: Path) -> RunFiles:
    return RunFiles(
        test=_read_json(directory / "test.json"), results=_read_json(directory / "results.json")
    )


def _read_json(path: Path) -> Mapping[str, Json]:
    try:
        contents = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return contents if isinstance(contents, dict) else {}


def _read_history(path: Path) -> History:
    if not path.exists():
        return History(())
    with path.open(encoding="utf-8") as lines:
        return History.from_lines(lines)


def _other_files(directory: Path) -> list[str]:
    names = (
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if path.is_file() and "data" not in path.relative_to(directory).parts
    )
    return sorted(name for name in names if not OWN_FILES.fullmatch(name))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
