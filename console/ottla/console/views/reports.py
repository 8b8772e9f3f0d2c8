"""Pages of reports of `ottla jepsen` and `ottla world`, from the folders in the console's settings.

Only files below these folders can be read. Names from the address are compared with the names in
the folder, and are never used to build a path.
"""

from http import HTTPStatus
from pathlib import Path

import trio

from ottla.console.http_errors import PageError
from ottla.console.links import address
from ottla.console.listing import listing
from ottla.console.page_types import Download, Page, PageRequest, PageView
from ottla.console.sheets import (
    Column,
    LinesPart,
    NotePart,
    SheetPart,
    TablePart,
    code,
    listed,
    sheet_view,
    size,
    when,
)
from ottla.model.values import frozen

REPORTS_MAX = 10_000
FILES_MAX = 500
SHOWN_BYTES = 65_536
"""Maximum number of bytes of a report's text file that a page shows. The download contains the
whole file."""
DOWNLOAD_BYTES = 64 * 1024 * 1024
TEXT_SUFFIXES = frozenset({".txt", ".md", ".json", ".log", ".edn", ".csv", ".yaml", ".toml"})


@frozen(kw_only=True)
class ReportFolder:
    """One report of `ottla jepsen` or `ottla world`: a folder, or a single file."""

    name: str
    path: Path
    changed_ms: int


async def reports(request: PageRequest) -> PageView:
    """Return the page that lists all reports, the newest first."""
    folders = request.config.report_folders
    if not folders:
        return sheet_view(
            "Reports",
            [
                NotePart(
                    text="No folder of reports is set in the settings of the console.",
                    command="ottla jepsen run --store FOLDER",
                )
            ],
        )
    found = await trio.to_thread.run_sync(_reports_in, folders)
    page = listing(
        found,
        request.query or {"sort": "-time"},
        text_of=lambda one: one.name,
        sorts={"time": lambda one: one.changed_ms, "name": lambda one: one.name},
    )
    return sheet_view(
        "Reports",
        [
            listed(
                "Reports",
                page,
                (Column(title="Report", key="name"), Column(title="Changed", key="time")),
                (
                    (
                        code(one.name, address("/reports/{report}", {"report": one.name})),
                        when(one.changed_ms),
                    )
                    for one in page.rows
                ),
                empty="There is no report in the folders yet.",
                empty_command="ottla jepsen run",
                search_label="Search reports",
            )
        ],
    )


async def report(request: PageRequest) -> PageView:
    """Return the page that shows one report: its files, and the text of its summary."""
    one = await _report_of(request)
    files = await trio.to_thread.run_sync(_files_of, one.path)
    rows = tuple(
        (
            code(name, address("/reports/{report}/{file}", {"report": one.name, "file": name})),
            size(path.stat().st_size),
        )
        for name, path in files.items()
    )
    parts: list[SheetPart] = [
        TablePart(
            title="Files",
            columns=(Column(title="File"), Column(title="Size", is_number=True)),
            rows=rows,
            empty="The report has no files.",
        )
    ]
    for name, path in files.items():
        if path.suffix in (".txt", ".md") or path.name in ("results.json", "summary.json"):
            shown = await trio.to_thread.run_sync(_text_of, path)
            parts.append(LinesPart(title=name, text=shown))
            break
    return sheet_view(one.name, parts)


async def report_file(request: PageRequest) -> PageView:
    """Return one file of a report: texts as a page, other files as a download."""
    one = await _report_of(request)
    files = await trio.to_thread.run_sync(_files_of, one.path)
    name = request.path["file"]
    path = files.get(name)
    if path is None:
        raise PageError(HTTPStatus.NOT_FOUND, "the report has no such file")
    if path.suffix in TEXT_SUFFIXES and "download" not in request.query:
        shown = await trio.to_thread.run_sync(_text_of, path)
        where = address(
            "/reports/{report}/{file}", {"report": one.name, "file": name}, {"download": "1"}
        )
        return sheet_view(
            name,
            [
                NotePart(text="", href=where, link_text="Download the whole file"),
                LinesPart(title=name, text=shown),
            ],
        )
    content = await trio.to_thread.run_sync(_content_of, path)
    return PageView(context={}, download=Download(name=path.name, content=content))


async def _report_of(request: PageRequest) -> ReportFolder:
    found = await trio.to_thread.run_sync(_reports_in, request.config.report_folders)
    name = request.path["report"]
    one = next((each for each in found if each.name == name), None)
    if one is None:
        raise PageError(HTTPStatus.NOT_FOUND, "there is no such report")
    return one


def _reports_in(folders: tuple[str, ...]) -> list[ReportFolder]:
    found: dict[str, ReportFolder] = {}
    for folder in folders:
        try:
            entries = sorted(Path(folder).iterdir())[:REPORTS_MAX]
        except OSError:
            continue  # It does not exist yet.
        for path in entries:
            if not path.name.startswith(".") and not path.is_symlink():
                changed_ms = int(path.stat().st_mtime * 1_000)
                found.setdefault(
                    path.name, ReportFolder(name=path.name, path=path, changed_ms=changed_ms)
                )
    return list(found.values())


def _files_of(path: Path) -> dict[str, Path]:
    """Return the paths of a report's files by their names below the report's folder. Symbolic links
    are omitted."""
    if path.is_file():
        return {path.name: path}
    found: dict[str, Path] = {}
    for one in sorted(path.rglob("*")):
        if len(found) >= FILES_MAX:
            break
        if one.is_file() and not one.is_symlink() and path.resolve() in one.resolve().parents:
            found[str(one.relative_to(path))] = one
    return found


def _text_of(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(SHOWN_BYTES + 1)
    text_ = content[:SHOWN_BYTES].decode("utf-8", "replace")
    if len(content) > SHOWN_BYTES:
        text_ += f"\n(the first {SHOWN_BYTES:,} bytes)"
    return text_


def _content_of(path: Path) -> bytes:
    if path.stat().st_size > DOWNLOAD_BYTES:
        raise PageError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the file has more than {DOWNLOAD_BYTES:,} bytes"
        )
    return path.read_bytes()


PAGES = (
    Page(
        name="reports",
        path="/reports",
        title="Reports",
        command="",
        view=reports,
        section="Operations",
        key="p",
    ),
    Page(name="report", path="/reports/{report}", title="Report", command="", view=report),
    Page(
        name="report-file",
        path="/reports/{report}/{file}",
        title="File of a report",
        command="",
        view=report_file,
    ),
)
