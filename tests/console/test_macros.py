"""Parts of pages: tables with pages and search, forms of actions, plots, live parts."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ottla.console.links import address
from ottla.console.listing import listing
from ottla.console.page_types import Action, Live, Page, PageRequest, PageView, UserRole
from ottla.console.rendering import FOLDER
from ottla.insight.explanation import Cause, concluded
from tests.console.console_fixture import Browser, FakeAdmin, open_browser

HOSTILE = "<img src=x onerror=alert(1)>\u202e"
TEMPLATE = """{% extends "base.html" %}
{% block content %}
{{ ui.search(things) }}
{% set columns = [("name", "Name", ""), ("size", "Size", "number"), ("", "Kind", "")] %}
{% call ui.table(things, "Things", columns) %}
{% for thing in things.rows %}
<tr><td>{{ thing }}</td><td>{{ 2048|bytes }}</td><td>{{ ui.badge("well", "good") }}</td></tr>
{% endfor %}
{% endcall %}
{% call ui.plain_table("Few", [("Name", "")]) %}<tr><td>one</td></tr>{% endcall %}
{% call ui.action_form("delete", "Delete", {"thing": things.search or "a"}) %}
{{ ui.field("reason", "Reason", hint="any") }}{% endcall %}
{{ ui.action_form("rename", "Rename", {"thing": "a"}) }}
{{ ui.choice("kind", "Kind", [("a", "A"), ("b", "B")], "b") }}
{{ ui.facts([("Name", things.search), ("State", ui.badge("slow", "warning"))]) }}
{{ ui.plot("Rate", "bytes", [1000, 2000], [("in", [1.5, none]), (things.search, [none, none])]) }}
{% call ui.live("ticks", {"thing": "a/b"}) %}{{ 1790000000000|when }}{% endcall %}
{{ ui.explanation(explained) }}
{{ ui.empty("Nothing.", "ottla topic list") }}{{ ui.unavailable("The cleaner") }}
{{ 0.5|percent }} {{ 12345.678|count }} {{ 0.25|seconds }} {{ none|count }} {{ 90000|milliseconds }}
{% endblock %}"""


async def view(request: PageRequest) -> PageView:
    names = (f"thing {number}" for number in range(250))
    found = listing(names, request.query, text_of=str, sorts={"name": str, "size": len})
    cause = Cause(kind="group", summary="group g has no member", remedy="start its consumers")
    explained = concluded("lag", "group g", [cause])
    return PageView(context={"things": found, "explained": explained})


async def run(_: PageRequest) -> PageView:
    return PageView(context={}, location="/")


async def ticks(_: PageRequest) -> AsyncGenerator[PageView, None]:
    yield PageView(context={})


PAGES = (
    Page(
        name="overview",
        path="/",
        title="Things",
        command="ottla topic list",
        view=view,
        section="Data",
        key="t",
        actions=(
            Action(name="delete", path="/{thing}/delete", command="", run=run, confirms="thing"),
            Action(name="rename", path="/{thing}/rename", command="", run=run, role=UserRole.ADMIN),
        ),
        lives=(Live(name="ticks", path="/live/{thing}", stream=ticks),),
    ),
)


@pytest.fixture
def templates(tmp_path: Path) -> list[str]:
    (tmp_path / "overview.html").write_text(TEMPLATE)
    return [str(tmp_path), str(FOLDER)]


async def html_of(browser: Browser, **query: object) -> str:
    return await browser.get(address("/", {}, query))


async def test_a_table_has_pages_order_and_search(templates: list[str]) -> None:
    async with open_browser(FakeAdmin(), pages=PAGES, templates=templates) as browser:
        html = await html_of(browser, page=2, sort="-name", q="thing")
        assert "Things: 101–200 of 250" in html
        assert 'aria-sort="descending"' in html
        assert 'href="/?page=3&amp;sort=-name&amp;q=thing"' in html
        assert 'href="/?sort=name&amp;q=thing"' in html
        assert 'value="thing"' in html
        assert '<input type="hidden" name="sort" value="-name">' in html
        nothing = await html_of(browser, q="none such")
        assert "Nothing matches “none such”." in nothing
        assert "Show all 250" in nothing


async def test_parts_show_hostile_values_harmlessly(templates: list[str]) -> None:
    async with open_browser(FakeAdmin(), pages=PAGES, templates=templates) as browser:
        html = await html_of(browser, q=HOSTILE, sort=HOSTILE, other=HOSTILE)
        assert "<img" not in html
        assert "\u202e" not in html
        assert "&lt;img src=x onerror=alert(1)&gt;\\u202e" in html


async def test_forms_follow_the_role_and_ask_for_the_name(templates: list[str]) -> None:
    async with open_browser(FakeAdmin(), pages=PAGES, templates=templates) as browser:
        html = await html_of(browser, q="a")
        assert 'action="/a/delete"' in html
        assert 'data-confirm="a"' in html
        assert 'action="/a/rename"' in html
    for role, can_delete in ((UserRole.OPERATOR, True), (UserRole.VIEWER, False)):
        async with open_browser(
            FakeAdmin(), pages=PAGES, templates=templates, role=role
        ) as browser:
            html = await html_of(browser)
            assert ('action="/a/delete"' in html) is can_delete
            assert 'action="/a/rename"' not in html


async def test_numbers_have_units_and_plots_a_table(templates: list[str]) -> None:
    async with open_browser(FakeAdmin(), pages=PAGES, templates=templates) as browser:
        html = await html_of(browser)
        for text in ("2 KiB", "50 %", "12,345.68", "250 ms", "90 s", "not available"):
            assert text in html, text
        assert '<time datetime="2026-09-21T14:13:20Z">' in html
        assert 'data-live="/live/a%2Fb"' in html
        assert "&#34;times&#34;: [1000, 2000]" in html
        assert '<td class="number">1 byte</td>' in html
        assert "<kbd" in html
        assert 'aria-current="page"' in html


async def test_a_remedy_is_a_sentence(templates: list[str]) -> None:
    async with open_browser(FakeAdmin(), pages=PAGES, templates=templates) as browser:
        assert "group g has no member. Start its consumers</p>" in await html_of(browser)
