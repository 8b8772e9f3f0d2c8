"""HTML frame of every report page. A page is one file that needs no network, in the light or dark
theme that the reader prefers.

The module is pure. Pages have no scripts, and their content policy allows none: even injected
markup could neither run nor load anything. Colours are distinguishable for readers who cannot tell
red from green (outcomes are blue, amber and magenta), and text has a contrast of 4.5 : 1.
"""

from collections.abc import Iterable, Mapping, Sequence

from ottla.jepsen.checkers.verdict import Validity
from ottla.jepsen.report.markup import Markup, element
from ottla.jepsen.report.run_files import SIGNS, VALIDITY_WORDS

LIGHT: Mapping[str, str] = {
    "ground": "#ffffff", "panel": "#f6f7f9", "ink": "#1a2230", "muted": "#596575",
    "line": "#d8dde4", "link": "#1659a8", "shade": "#e9e4f3",
    "ok": "#1c6db3", "info": "#9f5d00", "fail": "#b01e6c",
    "good": "#0b7a57", "good-ground": "#e4f5ee", "bad": "#b3251b", "bad-ground": "#fdeae8",
    "unsure": "#855600", "unsure-ground": "#fdf2dc",
    "c1": "#b84f07", "c2": "#0a7d5a", "c3": "#a03f8f", "c4": "#7358ad", "c5": "#866a08",
    "rest": "#7d8996",
}  # fmt: skip
DARK: Mapping[str, str] = {
    "ground": "#11151b", "panel": "#191f28", "ink": "#e5e9ef", "muted": "#9ba7b6",
    "line": "#303a47", "link": "#86bdf7", "shade": "#2f2b45",
    "ok": "#5fb0f4", "info": "#f0b03c", "fail": "#f27db3",
    "good": "#4ccb9f", "good-ground": "#10322a", "bad": "#ff8f84", "bad-ground": "#3d1a19",
    "unsure": "#f0b851", "unsure-ground": "#3a2c0e",
    "c1": "#f28c45", "c2": "#4bcb9e", "c3": "#dc8fce", "c4": "#a58be0", "c5": "#d3b43c",
    "rest": "#8592a3",
}  # fmt: skip


def _variables(colours: Mapping[str, str]) -> str:
    return ":root{" + ";".join(f"--{name}:{value}" for name, value in colours.items()) + "}"


COLOURS = (
    f":root{{color-scheme:light dark}}{_variables(LIGHT)}"
    f"@media(prefers-color-scheme:dark){{{_variables(DARK)}}}"
)
STYLE = """
*{box-sizing:border-box}body{margin:0;background:var(--ground);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 32px 64px}main.full{max-width:none}
h1{font-size:26px;line-height:1.25;margin:0 0 4px}h2{font-size:18px;margin:38px 0 10px}
h3{font-size:15px;margin:20px 0 6px}p{margin:6px 0}a{color:var(--link)}
.muted{color:var(--muted)}.small{font-size:13px}
.mono,pre{font:13px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.jump a{margin-right:16px}.valid{--k:var(--good);--b:var(--good-ground)}
.invalid{--k:var(--bad);--b:var(--bad-ground)}.unknown{--k:var(--unsure);--b:var(--unsure-ground)}
.verdict{display:flex;gap:16px;align-items:center;border-radius:12px;padding:16px 22px;
margin:14px 0 18px;border:1px solid var(--k);background:var(--b)}
.verdict b{font-size:30px;line-height:1;color:var(--k)}
.verdict p{margin:0;font-size:18px;line-height:1.4;overflow-wrap:anywhere}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(118px,1fr));gap:10px;margin:0}
.figures div,pre{background:var(--panel);border:1px solid var(--line);border-radius:10px;
padding:10px 12px}dt{color:var(--muted);font-size:13px}
dd{margin:0;font-size:20px;font-weight:600;white-space:nowrap}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:14px}
th{text-align:left;color:var(--muted);font-size:13px}
th,td{padding:6px 14px 6px 0;border-bottom:1px solid var(--line);vertical-align:top}
td{overflow-wrap:anywhere}td:not(:last-child){white-space:nowrap}
table.text td{white-space:normal}table,dd{font-variant-numeric:tabular-nums}
.tag{display:inline-block;white-space:nowrap;border-radius:20px;padding:1px 10px;font-size:13px;
font-weight:600;border:1px solid var(--k,var(--line));color:var(--k,var(--muted));
background:var(--b,none)}
.finding{border:1px solid var(--line);border-left:4px solid var(--bad);border-radius:8px;
padding:10px 16px;margin:10px 0;background:var(--panel)}.allowed{border-left-color:var(--line)}
.finding table{font-size:13px}
.ok{color:var(--ok)}.fail{color:var(--fail)}.info{color:var(--info)}.bad{color:var(--bad)}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:6px 0}summary{cursor:pointer;padding:4px 0}
.picture{margin:14px 0 26px;overflow-x:auto}.picture svg{display:block;min-width:820px;width:100%;
height:auto}.files{columns:3 240px;list-style:none;padding:0;overflow-wrap:anywhere}
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page_text(title: str, *body: object, style: str = "", class_: str | None = None) -> str:
    """Return the text of an HTML page with the given title and body."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Markup(COLOURS + STYLE + style)),
    )
    main = element("main", *body, class_=class_)
    return f"<!DOCTYPE html>\n{element('html', head, element('body', main), lang='en')}\n"


def table(
    heads: Sequence[object], rows: Iterable[Sequence[object]], class_: str | None = None
) -> Markup:
    """Return an HTML table, whose rows are sequences of cells. A table that is wider than the page
    has its own scroll bar."""
    head = element("thead", element("tr", *(_cell("th", part) for part in heads)))
    body = (element("tr", *(_cell("td", part) for part in row)) for row in rows)
    whole = element("table", head, element("tbody", *body), class_=class_)
    return element("div", whole, class_="wide")


def _cell(name: str, part: object) -> Markup:
    is_cell = isinstance(part, Markup) and part.startswith(("<td", "<th"))
    return Markup(part) if is_cell else element(name, part)


def tag(words: str, valid: Validity | None = None) -> Markup:
    """Return a small HTML label with the text `words`. The label has the colours of the verdict
    `valid`, if it is not None."""
    colour = "" if valid is None else f" {VALIDITY_WORDS[valid]}"
    return element("span", words, class_=f"tag{colour}")


def verdict_tag(valid: Validity) -> Markup:
    """Return a verdict as a small HTML label in the verdict's colours."""
    return tag(f"{SIGNS[valid]} {VALIDITY_WORDS[valid]}", valid)


def verdict_box(valid: Validity, sentence: str, *more: object) -> Markup:
    """Return the HTML box at the top of a page. It contains the verdict, in the verdict's colours,
    and an explanation of one sentence."""
    sign = element("b", SIGNS[valid], aria_hidden="true")
    words = element("div", element("p", sentence), *more)
    return element("div", sign, words, class_=f"verdict {VALIDITY_WORDS[valid]}", role="status")


def figures_list(rows: Iterable[tuple[str, str]]) -> Markup:
    """Return an HTML list of named values, shown side by side."""
    boxes = (element("div", element("dt", name), element("dd", value)) for name, value in rows)
    return element("dl", *boxes, class_="figures")


def breadcrumbs(*parts: object) -> Markup:
    """Return the navigation path at the top of a page as HTML."""
    return element("p", *parts, class_="muted small")
