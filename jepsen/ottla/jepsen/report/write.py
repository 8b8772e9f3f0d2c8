"""Writes the pages and pictures of a run, and the matrix of a store.

The only module here that touches files.  What it reads: history.jsonl, test.json, results.json;
each may be missing.  What it writes lies beside them, whole or not at all, and needs nothing else.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from ottla.jepsen.history import History, Json, collection_paused
from ottla.jepsen.report.clocks import clock
from ottla.jepsen.report.consumers import realtime_lag, unseen
from ottla.jepsen.report.faults import faults_of
from ottla.jepsen.report.latency import latency_quantiles, latency_raw
from ottla.jepsen.report.linear import Search, linear_page
from ottla.jepsen.report.matrix import StoredRun, matrix_page
from ottla.jepsen.report.measures import final_reads_ns, log_values
from ottla.jepsen.report.orders import order
from ottla.jepsen.report.rates import rate
from ottla.jepsen.report.run_page import RunParts, run_page
from ottla.jepsen.report.shown import NOTES_FROM
from ottla.jepsen.report.timeline import timeline
from ottla.jepsen.report.told import Told

KEYS_MAX = 16
"""Bad keys with pictures of their own."""
OWN_FILES = re.compile(r"(index|timeline)\.html|.*\.svg|(orders|linear)/.*")
UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
RUN_FILES = ("results.json", "test.json")


def write_report(run_directory: Path, history: History | None = None) -> Path:
    """Write a run's pages and pictures into its directory; return the path of its index.html.

    `history` spares reading history.jsonl again when the caller has it.
    """
    with collection_paused():
        if history is None:
            history = _read_history(run_directory / "history.jsonl")
        return _write_report(run_directory, history)


def _write_report(run_directory: Path, history: History) -> Path:
    told = _told(run_directory)
    faults = faults_of(history)
    operations = history.operations()
    load = [operation for operation in operations if operation.invoke.process < NOTES_FROM]
    end_s = history.end_ns / 1e9
    logs = log_values(operations)
    final_ns = final_reads_ns(operations)
    drawn = [
        latency_raw(load, faults, end_s),
        latency_quantiles(load, faults, end_s),
        rate(load, faults, end_s),
        unseen(logs, faults, end_s, final_ns),
        realtime_lag(history, logs, faults, end_s, final_ns),
        clock(history, faults, end_s),
    ]
    pictures = [picture for picture in drawn if picture is not None]
    for picture in pictures:
        _write(run_directory / f"{picture.name}.svg", picture.file_text())
    key_pages: dict[str, list[tuple[str, str]]] = {}
    proving: set[int] = set()
    by_key: dict[str, set[int]] = {}
    for _, finding in told.findings:
        proving |= set(finding.operations)
        if finding.key is not None:
            by_key.setdefault(finding.key, set()).update(finding.operations)
    for key, indexes in list(by_key.items())[:KEYS_MAX]:
        picture_ = order(key, operations, indexes, faults, end_s)
        if picture_ is not None:
            path = f"orders/{file_name(key)}.svg"
            _write(run_directory / path, picture_.file_text())
            key_pages.setdefault(key, []).append(("offsets over time", path))
    for name, search in told.searches.items():
        path = f"linear/{file_name(name)}.html"
        _write(run_directory / path, linear_page(name, Search.from_json(search), told.title))
        # A finding names its key alone, a register its group too.
        for key in {name, name.rpartition("/")[2]}:
            key_pages.setdefault(key, []).append((f"longest order of {name}", path))
    page = timeline(
        history,
        faults,
        title=told.title,
        proving=proving,
        concurrency=told.concurrency,
    )
    _write(run_directory / "timeline.html", page)
    parts = RunParts(
        told=told,
        history=history,
        faults=faults,
        pictures=pictures,
        key_pages=key_pages,
        files=_files(run_directory),
        matrix_path=_matrix_path(run_directory),
    )
    index = run_directory / "index.html"
    _write(index, run_page(parts))
    return index


def write_matrix(store_directory: Path) -> Path:
    """Write the page of all runs below a store's directory; return its path."""
    runs = []
    found = {path.parent for name in RUN_FILES for path in store_directory.glob(f"*/*/{name}")}
    for directory in sorted(found):
        # "latest" and the like name a run that is there already.
        if directory.is_symlink() or directory.parent.is_symlink():
            continue
        is_finished = (directory / "results.json").exists()
        path = directory.relative_to(store_directory).as_posix()
        runs.append(StoredRun(_told(directory), path, is_finished))
    index = store_directory / "index.html"
    _write(index, matrix_page(runs))
    return index


def file_name(key: str) -> str:
    """Return a name for a key's files that no key can lead out of their directory with."""
    return UNSAFE.sub("_", key).lstrip(".") or "_"


def _told(directory: Path) -> Told:
    return Told(
        test=_read_json(directory / "test.json"), results=_read_json(directory / "results.json")
    )


def _read_json(path: Path) -> Mapping[str, Json]:
    try:
        told = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return told if isinstance(told, dict) else {}


def _read_history(path: Path) -> History:
    if not path.exists():
        return History(())
    with path.open(encoding="utf-8") as lines:
        return History.from_lines(lines)


def _files(directory: Path) -> list[str]:
    names = (
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if path.is_file() and "data" not in path.relative_to(directory).parts
    )
    return sorted(name for name in names if not OWN_FILES.fullmatch(name))


def _matrix_path(directory: Path) -> str:
    return "../../index.html"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
