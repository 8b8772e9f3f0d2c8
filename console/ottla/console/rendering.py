"""Prepares the console's templates: their filters, and the functions that templates call.

Every value is escaped for HTML, even without a filter. Control characters and bidirectional
overrides are replaced by visible escapes. A name that is missing in the template's context causes
an error.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from ottla.console.links import address
from ottla.console.page_types import SECTIONS, Action, Live, Page, UserRole
from ottla.model.amounts import MOMENT_MS_MAX, amount, duration, moment
from ottla.model.version import VERSION
from ottla.model.visible_text import visible, visible_json

FOLDER = Path(__file__).parent / "templates"
UNKNOWN = "–"
"""Text that pages show in place of an unknown number."""


def build_environment(
    pages: tuple[Page, ...],
    static_address: Callable[[str], str],
    folder: Path = FOLDER,
) -> jinja2.Environment:
    """Return the Jinja environment that renders the console's templates.

    Templates have the functions `link`, `action_of`, `live_of` and `static`, and the tables `pages`
    and `sections`.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= FILTERS
    paths = {one.name: one.path for one in pages}
    actions = {one.name: one for page in pages for one in page.actions}
    lives = {one.name: one for page in pages for one in page.lives}

    def link(page: str, /, query: Mapping[str, object] = {}, **values: str) -> str:
        return address(paths[page], values, query)

    def action_of(name: str) -> Action:
        return actions[name]

    def live_of(name: str) -> Live:
        return lives[name]

    environment.globals |= {
        "link": link,
        "action_of": action_of,
        "live_of": live_of,
        "address": address,
        "static": static_address,
        "pages": pages,
        "sections": SECTIONS,
        "UserRole": UserRole,
        "version": VERSION,
    }
    return environment


def _shown(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def count_text(value: float | None) -> str:
    """Return a number as text, with separators between thousands. Fractions have at most two
    digits."""
    if value is None:
        return UNKNOWN
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}".rstrip("0").rstrip(".")


def bytes_text(value: float | None) -> str:
    """Return a number of bytes as text with its unit, such as `1.5 KiB`."""
    return UNKNOWN if value is None else amount(int(value))


def seconds_text(value: float | None) -> str:
    """Return a duration in seconds as text with a suitable unit, such as `850 ms` or `5 min`."""
    return UNKNOWN if value is None else duration(float(value) * 1_000)


def milliseconds_text(value: float | None) -> str:
    """Return a duration in ms as text with a suitable unit, such as `5 min`."""
    return UNKNOWN if value is None else duration(value)


def percent_text(value: float | None) -> str:
    """Return a fraction from 0 to 1 as text in percent."""
    return UNKNOWN if value is None else f"{value * 100:.3g} %"


def when_element(time_ms: int | None) -> Markup:
    """Return a time in ms since 1970 as an HTML `time` element, which the browser shows in the
    reader's time zone. Times outside of the years 1970 to 9999 are shown as numbers."""
    if time_ms is None:
        return Markup(UNKNOWN)
    text = moment(time_ms)
    if not 0 <= time_ms <= MOMENT_MS_MAX:
        return escape(text)
    return Markup('<time datetime="{0}">{0}</time>').format(text)


def lines_text(value: str) -> Markup:
    """Return a text of several lines for an HTML `pre` element. Line ends and tabs are
    preserved."""
    return escape(visible(value, keeps_layout=True))


def sentence_text(value: str) -> str:
    """Return a text with a capital letter at its start."""
    return value[:1].upper() + value[1:]


FILTERS: dict[str, Callable[..., Any]] = {
    "visible": visible,
    "lines": lines_text,
    "sentence": sentence_text,
    "count": count_text,
    "bytes": bytes_text,
    "seconds": seconds_text,
    "milliseconds": milliseconds_text,
    "percent": percent_text,
    "when": when_element,
    "json": visible_json,
}
