"""Types for the parts of a page: facts, tables, notes, forms and plots. Pure.

If a page needs no special layout, its view (the function that computes the page) returns a `Sheet`.
The template `sheet.html` shows the parts of the sheet in order, and escapes all values. A test
reads the values without HTML.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Generic, TypeAlias, TypeVar

from ottla.console.listing import ListPage, listing
from ottla.console.page_types import PageView
from ottla.insight.explanation import Explanation
from ottla.model.values import frozen

CellValue: TypeAlias = str | int | float | None


@frozen(kw_only=True)
class Cell:
    """One value in a table or in a list of values on a page."""

    value: CellValue
    form: str = "text"
    """Form in which the cell's value is shown: text, code, count, bytes, seconds, milliseconds,
    percent, when or badge."""
    href: str = ""
    """Address to which the cell links. Empty if the cell is not a link."""
    tone: str = "neutral"
    """Severity that the colour of a badge shows: good, warning, bad or neutral."""

    @property
    def is_number(self) -> bool:
        """True if the cell's value is a number, which is aligned to the right."""
        return self.form in NUMBER_FORMS


NUMBER_FORMS = frozenset({"count", "bytes", "seconds", "milliseconds", "percent"})


def text(value: object, href: str = "") -> Cell:
    """Return a table cell with a text. None and an empty text are shown as a dash."""
    return Cell(value=None if value is None else str(value), href=href)


def code(value: object, href: str = "") -> Cell:
    """Return a table cell with a name, a command or an address."""
    return Cell(value=None if value is None else str(value), form="code", href=href)


def count(value: float | None, href: str = "") -> Cell:
    """Return a table cell with a number. None is an unknown number."""
    return Cell(value=value, form="count", href=href)


def size(value: float | None) -> Cell:
    """Return a table cell with a number of bytes."""
    return Cell(value=value, form="bytes")


def seconds(value: float | None) -> Cell:
    """Return a table cell with a duration in seconds."""
    return Cell(value=value, form="seconds")


def milliseconds(value: float | None) -> Cell:
    """Return a table cell with a duration in ms."""
    return Cell(value=value, form="milliseconds")


def percent(value: float | None) -> Cell:
    """Return a table cell with a fraction from 0 to 1, which is shown in percent."""
    return Cell(value=value, form="percent")


def when(time_ms: int | None) -> Cell:
    """Return a table cell with a time in ms since 1970."""
    return Cell(value=time_ms, form="when")


def badge(value: str, tone: str = "neutral", href: str = "") -> Cell:
    """Return a table cell with a state, and its tone: good, warning, bad or neutral."""
    return Cell(value=value, form="badge", tone=tone, href=href)


@frozen(kw_only=True)
class Column:
    """Column of a table on a page."""

    title: str
    key: str = ""
    """Value of the query parameter that sorts the list by this column. Empty if the list cannot be
    sorted by this column."""
    is_number: bool = False


Row: TypeAlias = tuple[Cell, ...]
Thing = TypeVar("Thing")


@frozen(kw_only=True)
class ListColumn(Generic[Thing]):
    """Column of a table that shows a list: its title, the cell for each element of the list, and
    the sort order."""

    title: str
    cell: Callable[[Thing], Cell]
    """Function that returns the cell of an element of the list."""
    key: str = ""
    """Value of the query parameter that sorts the list by this column. Empty if the list cannot be
    sorted by this column."""
    order: Callable[[Thing], Any] | None = None
    """Function that returns the value by which the list is sorted, or None to sort by the value of
    the cell."""
    is_number: bool = False

    def order_of(self, thing: Thing) -> Any:
        """Return the value by which an element of the list is sorted."""
        return self.cell(thing).value if self.order is None else self.order(thing)


@frozen(kw_only=True)
class FactsPart:
    """Part of a page that lists values with their names."""

    kind: str = "facts"
    title: str = ""
    facts: tuple[tuple[str, Cell], ...]


@frozen(kw_only=True)
class TablePart:
    """Part of a page: a table of a bounded number of rows."""

    kind: str = "table"
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    empty: str = "There are none."
    """Sentence that the page shows in place of an empty table. It names the next step."""
    empty_command: str = ""
    listing: ListPage[Any] | None = None
    """The page of a long list that the table shows, with its search and order, or None if the table
    shows all rows. At most one table of a sheet shows a page of a list."""
    search_label: str = "Search"
    loads: str = ""
    """Address of the same page with more values in the table. The browser loads this address after
    the page. Empty if the table is complete."""


@frozen(kw_only=True)
class NotePart:
    """Part of a page with a sentence, its severity, and a command that helps."""

    kind: str = "note"
    text: str
    tone: str = "neutral"
    command: str = ""
    href: str = ""
    link_text: str = ""


@frozen(kw_only=True)
class AbsentPart:
    """Part of a page that explains missing information: only clusters of Ottla support the request
    for it."""

    kind: str = "absent"
    thing: str


@frozen(kw_only=True)
class ExplanationPart:
    """Part of a page: an explanation with causes, evidence and commands."""

    kind: str = "explanation"
    title: str = ""
    found: Explanation
    finding: str = "cause"
    """Noun for a cause in the explanation. Empty if the explanation only shows tables."""


@frozen(kw_only=True)
class FormField:
    """Input field of a form on a page."""

    name: str
    label: str
    value: str = ""
    type: str = "text"
    """Type of the HTML input element, or "select", "area", "hidden" or "username". A "username"
    element is hidden, has no name and is not sent; password managers read the user name from it."""
    hint: str = ""
    is_required: bool = False
    options: tuple[tuple[str, str], ...] = ()
    """Values and texts of the options from which the user selects."""


@frozen(kw_only=True)
class FormPart:
    """Part of a page: the form of an action, or a form that opens the same page with other
    parameters."""

    kind: str = "form"
    title: str
    button: str
    fields: tuple[FormField, ...] = ()
    action: str = ""
    """Name of the action in PAGES that the form requests. Empty for a form that only reads."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Values of the parameters in the path of the form's action."""
    href: str = ""
    """Address that a read-only form opens. Empty for the form of an action."""
    hint: str = ""


def choice_form(
    action: str,
    title: str,
    button: str,
    field: tuple[str, str],
    options: tuple[tuple[str, str], ...],
    *more: FormField,
    values: Mapping[str, str] = {},
    hint: str = "",
) -> FormPart:
    """Return the form of an action on one of several objects, which the user selects. `field` has
    the name and the label of the field. `options` has the values and texts of the objects."""
    name, label = field
    chosen = FormField(name=name, label=label, type="select", options=options)
    return FormPart(
        title=title, button=button, action=action, values=values, fields=(chosen, *more), hint=hint
    )


@frozen(kw_only=True)
class PlotPart:
    """Part of a page: a plot of values over time."""

    kind: str = "plot"
    title: str
    unit: str
    """Unit of the plot's values: bytes, seconds, count or percent."""
    times_ms: tuple[int, ...]
    series: tuple[tuple[str, tuple[float | None, ...]], ...]
    """Label and values of each line of the plot. A value of None is a gap."""


@frozen(kw_only=True)
class LinksPart:
    """Part of a page: links to pages about the same object, including the present page."""

    kind: str = "links"
    links: tuple[tuple[str, str], ...]
    """Text and address of each link in this part of the page."""
    current: str = ""
    """Text of the link to the present page. Empty if the links do not contain the present page."""


@frozen(kw_only=True)
class LinesPart:
    """Part of a page: a text of several lines, such as a report."""

    kind: str = "lines"
    title: str
    text: str


SheetPart: TypeAlias = (
    FactsPart
    | TablePart
    | NotePart
    | AbsentPart
    | ExplanationPart
    | FormPart
    | PlotPart
    | LinksPart
    | LinesPart
)


@frozen(kw_only=True)
class Sheet:
    """Content of a page without a special layout."""

    heading: str
    """Heading of the page, which is also its title."""
    lead: str = ""
    """Sentence below the page's heading. Empty if the page has no such sentence."""
    parts: tuple[SheetPart, ...]
    live: str = ""
    """Name of the page's live part, which is shown before all other parts. Empty if the page has no
    live part."""
    live_values: Mapping[str, str] = field(default_factory=dict)
    live_parts: tuple[SheetPart, ...] = ()


def sheet_view(
    heading: str,
    parts: Iterable[SheetPart | None],
    *,
    lead: str = "",
    command: str | None = None,
    live: str = "",
    live_values: Mapping[str, str] = {},
    live_parts: Iterable[SheetPart | None] = (),
) -> PageView:
    """Return the result of a page's view: a sheet with `parts`. Parts that are None are omitted.
    `command` replaces the command of the page."""
    sheet = Sheet(
        heading=heading,
        lead=lead,
        parts=tuple(one for one in parts if one is not None),
        live=live,
        live_values=live_values,
        live_parts=tuple(one for one in live_parts if one is not None),
    )
    context: dict[str, object] = {"sheet": sheet}
    if command is not None:
        context["command"] = command
    return PageView(context=context, template="sheet")


def list_table(
    title: str,
    things: Iterable[Thing],
    query: Mapping[str, str],
    columns: Sequence[ListColumn[Thing]],
    *,
    text_of: Callable[[Thing], str],
    empty: str,
    empty_command: str = "",
    search_label: str = "Search",
) -> TablePart:
    """Return a table with one page of a list. The query parameters determine the search (in
    `text_of`), the order and the page.

    Cells are created only for the elements on this page of the list, and for the column by which
    the list is sorted.
    """
    page = listing(
        things,
        query,
        text_of=text_of,
        sorts={one.key: one.order_of for one in columns if one.key},
    )
    return listed(
        title,
        page,
        [Column(title=one.title, key=one.key, is_number=one.is_number) for one in columns],
        (tuple(one.cell(thing) for one in columns) for thing in page.rows),
        empty=empty,
        empty_command=empty_command,
        search_label=search_label,
    )


def plain_table(
    title: str, things: Iterable[Thing], columns: Sequence[ListColumn[Thing]]
) -> TablePart:
    """Return a table of a few elements, without search, order and pages."""
    return TablePart(
        title=title,
        columns=tuple(Column(title=one.title, is_number=one.is_number) for one in columns),
        rows=tuple(tuple(column.cell(one) for column in columns) for one in things),
    )


def listed(
    title: str,
    listing: ListPage[Any],
    columns: Iterable[Column],
    rows: Iterable[Row],
    *,
    empty: str,
    empty_command: str = "",
    search_label: str = "Search",
    loads: str = "",
) -> TablePart:
    """Return a table that shows one page of a list. `rows` has a table row for each element of the
    page."""
    return TablePart(
        title=title,
        columns=tuple(columns),
        rows=tuple(rows),
        empty=empty,
        empty_command=empty_command,
        listing=listing,
        search_label=search_label,
        loads=loads,
    )
