"""The console's application, with a fake admin client: pages, headers, forms, errors, streams."""

from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

import pytest
import trio
from starlette.types import Message

from ottla.console.app import AT_WORK_OF_SESSION_MAX as AT_WORK_MAX
from ottla.console.app import HEADERS, STREAMS_OF_SESSION_MAX
from ottla.console.event_stream import SEND_S, STREAM_S, EventStream
from ottla.console.page_types import (
    Action,
    Download,
    Live,
    Page,
    PageRequest,
    PageView,
    UserRole,
    ViewFunction,
)
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from tests.console.console_fixture import HOST, Browser, FakeAdmin, open_browser

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e'\"&"
TEMPLATE = """{% extends "base.html" %}
{% block content %}<p id="shown">{{ shown }}</p>{% endblock %}"""


def pages_of(
    view: ViewFunction, *actions: Action, lives: tuple[Live, ...] = ()
) -> tuple[Page, ...]:
    """Return a table with one page, whose parameter is a name."""

    async def home(_: PageRequest) -> PageView:
        return PageView(context={"shown": "home"})

    return (
        Page(name="overview", path="/", title="Overview", command="", view=home),
        Page(
            name="thing",
            path="/things/{thing}",
            title="Thing",
            command="ottla topic describe {thing}",
            view=view,
            actions=actions,
            lives=lives,
        ),
    )


@pytest.fixture
def templates(tmp_path: Path) -> list[str]:
    own = Path(__file__).parents[2] / "console/ottla/console/templates"
    for name in ("overview", "thing"):
        (tmp_path / f"{name}.html").write_text(TEMPLATE)
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "ticks.html").write_text("<p>{{ shown }}</p>\n<p>2</p>")
    return [str(tmp_path), str(own)]


async def shown(request: PageRequest) -> PageView:
    return PageView(context={"shown": request.path["thing"]})


async def test_each_response_has_the_security_headers(templates: list[str]) -> None:
    async with open_browser(FakeAdmin(), pages=pages_of(shown), templates=templates) as browser:
        for address in ("/", "/nowhere", "/static/console.js", "/static/none.js"):
            response = await browser.http.get(address)
            assert {name: response.headers[name] for name in HEADERS} == HEADERS
        assert "no-store" in (await browser.http.get("/")).headers["cache-control"]


async def test_hostile_names_are_shown_harmlessly_and_reach_the_view(templates: list[str]) -> None:
    async with open_browser(FakeAdmin(), pages=pages_of(shown), templates=templates) as browser:
        address = browser.address("thing", thing=HOSTILE)
        html = await browser.get(address)
        assert "<script>alert" not in html
        assert "\x1b" not in html
        assert "\u202e" not in html
        assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m\\u202e&#39;&#34;&amp;" in html


@pytest.mark.parametrize("name", ["a/b", "..", "", "~", "%2F", "ä ö", "a?b#c", "+", "a\\b"])
async def test_any_name_has_an_address(name: str, templates: list[str]) -> None:
    seen = []

    async def view(request: PageRequest) -> PageView:
        seen.append(request.path["thing"])
        return PageView(context={"shown": ""})

    async with open_browser(FakeAdmin(), pages=pages_of(view), templates=templates) as browser:
        await browser.get(browser.address("thing", thing=name))
    assert seen == [name]


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED), 403, "Not allowed"),
        (RefusedError(ErrorCode.SASL_AUTHENTICATION_FAILED), 401, "refused the login"),
        (RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 404, "Not found"),
        (RefusedError(ErrorCode.UNSUPPORTED_VERSION), 200, "Not available on this cluster"),
        (RefusedError(ErrorCode.INVALID_CONFIG, "no <b>"), 409, "no &lt;b&gt;"),
        (OttlaError("no broker answers"), 503, "no broker answers"),
        (ExceptionGroup("", [OttlaError("no broker answers")]), 503, "no broker answers"),
        (ValueError("a secret detail"), 500, "the console&#39;s log has the details"),
    ],
)
async def test_an_error_of_a_view_becomes_a_page(
    error: Exception, status: int, text: str, templates: list[str]
) -> None:
    async def view(_: PageRequest) -> PageView:
        raise error

    async with open_browser(FakeAdmin(), pages=pages_of(view), templates=templates) as browser:
        html = await browser.get("/things/a", status)
        assert text in html
        assert "secret" not in html


async def test_a_slow_view_ends_at_its_time_limit(
    templates: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    async def view(_: PageRequest) -> PageView:
        await trio.sleep_forever()
        raise AssertionError

    async with open_browser(FakeAdmin(), pages=pages_of(view), templates=templates) as browser:
        assert "answers too slowly" in await browser.get("/things/a", 504)


def deletion(done: list[str], role: UserRole = UserRole.OPERATOR) -> Action:
    async def run(request: PageRequest) -> PageView:
        done.append(request.path["thing"])
        return PageView(context={}, location="/", notice="deleted <b>")

    return Action(
        name="delete",
        path="/things/{thing}/delete",
        command="ottla topic delete",
        run=run,
        role=role,
        confirms="thing",
    )


async def test_an_action_needs_token_name_and_role(templates: list[str]) -> None:
    done: list[str] = []
    pages = pages_of(shown, deletion(done))
    async with open_browser(FakeAdmin(), pages=pages, templates=templates) as browser:
        where = "/things/a/delete"
        assert (await browser.http.post(where, data={"confirm": "a"})).status_code == 403
        forged = {"csrf": "x" * 88, "confirm": "a"}
        assert (await browser.http.post(where, data=forged)).status_code == 403
        assert (await browser.post(where)).status_code == 400
        assert (await browser.post(where, {"confirm": "b"})).status_code == 400
        assert (await browser.http.get(where)).status_code == 405
        assert done == []
        html = await browser.act(where, {"confirm": "a"})
        assert done == ["a"]
        assert "deleted &lt;b&gt;" in html
        assert "deleted" not in await browser.get("/")
        outcomes = [one["outcome"].partition(":")[0] for one in browser.audit.lines]
        assert outcomes == ["refused"] * 4 + ["done"]
        assert all(one["values"] == {"thing": "a"} for one in browser.audit.lines)
    async with open_browser(
        FakeAdmin(), pages=pages, templates=templates, role=UserRole.VIEWER
    ) as browser:
        response = await browser.post(where, {"confirm": "a"})
        assert response.status_code == 403
        assert "this needs the role operator" in response.text


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
async def test_a_form_of_another_site_is_refused(
    headers: dict[str, str], templates: list[str]
) -> None:
    done: list[str] = []
    pages = pages_of(shown, deletion(done))
    async with open_browser(FakeAdmin(), pages=pages, templates=templates) as browser:
        browser.http.headers.update(headers)
        assert (await browser.post("/things/a/delete", {"confirm": "a"})).status_code == 403
        assert done == []
        browser.http.headers.update({"origin": HOST, "sec-fetch-site": "same-origin"})
        assert (await browser.post("/things/a/delete", {"confirm": "a"})).status_code == 303


async def send(browser: Browser, content: bytes, content_type: str) -> int:
    headers = {"content-type": content_type}
    response = await browser.http.post("/things/a/delete", content=content, headers=headers)
    return response.status_code


async def test_forms_and_queries_are_bounded(templates: list[str]) -> None:
    form_type = "application/x-www-form-urlencoded"
    pages = pages_of(shown, deletion([]))
    async with open_browser(FakeAdmin(), pages=pages, templates=templates) as browser:
        assert await send(browser, b"a=" + b"x" * 5_000_000, form_type) == 413
        assert await send(browser, b"&".join([b"a=1"] * 501), form_type) == 400
        assert await send(browser, b"a=%ff", form_type) == 400
        assert await send(browser, b"{}", "application/json") == 415
        assert (await browser.http.get("/things/a?q=" + "x" * 20_000)).status_code == 414
        assert (await browser.http.get("/things/%ff")).status_code == 404


async def test_a_download_is_no_page(templates: list[str]) -> None:
    async def view(_: PageRequest) -> PageView:
        return PageView(context={}, download=Download(name='a"\r\nb.html', content=b"<script>"))

    async with open_browser(FakeAdmin(), pages=pages_of(view), templates=templates) as browser:
        response = await browser.http.get("/things/a")
        assert response.content == b"<script>"
        assert response.headers["content-disposition"] == (
            'attachment; filename="a__x0d_x0ab.html"'
        )
        assert response.headers["content-type"] == "application/octet-stream"


async def test_a_live_part_sends_an_event_for_each_view_and_its_failure(
    templates: list[str],
) -> None:
    async def ticks(request: PageRequest) -> AsyncGenerator[PageView, None]:
        yield PageView(context={"shown": request.path["thing"] + HOSTILE})
        raise OttlaError("no broker answers")

    live = Live(name="ticks", path="/live/things/{thing}", stream=ticks)
    pages = pages_of(shown, lives=(live,))
    async with open_browser(FakeAdmin(), pages=pages, templates=templates) as browser:
        response = await browser.http.get("/live/things/a")
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.text.splitlines()
        assert lines[2] == "event: swap"
        assert lines[3].startswith("data: <p>a&lt;script&gt;")
        assert lines[4] == "data: <p>2</p>"
        assert lines[6:8] == ["event: failed", "data: no broker answers"]


async def test_pages_without_rights_are_refused(templates: list[str]) -> None:
    page = Page(
        name="thing", path="/secret", title="T", command="", view=shown, role=UserRole.ADMIN
    )
    pages = (*pages_of(shown)[:1], page)
    async with open_browser(
        FakeAdmin(), pages=pages, templates=templates, role=UserRole.OPERATOR
    ) as browser:
        assert "this needs the role admin" in await browser.get("/secret", 403)


async def test_live_parts_and_pages_at_work_are_bounded_for_each_session(
    templates: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    ended: list[int] = []

    async def ticks(_: PageRequest) -> AsyncGenerator[PageView, None]:
        try:
            yield PageView(context={"shown": ""})
            await trio.sleep_forever()
        finally:
            ended.append(1)

    async def slow(_: PageRequest) -> PageView:
        await trio.sleep_forever()
        raise AssertionError

    pages = pages_of(slow, lives=(Live(name="ticks", path="/live/{thing}", stream=ticks),))
    async with open_browser(FakeAdmin(), pages=pages, templates=templates) as browser:
        for address, most in (("/live/a", STREAMS_OF_SESSION_MAX), ("/things/a", AT_WORK_MAX)):
            async with trio.open_nursery() as nursery:
                for _ in range(most):
                    nursery.start_soon(browser.http.get, address)
                await trio.sleep(1)
                assert (await browser.http.get(address)).status_code == 429
                nursery.cancel_scope.cancel()
            assert (await browser.http.get("/")).status_code == 200
        assert len(ended) == STREAMS_OF_SESSION_MAX


async def test_a_stream_ends_when_the_browser_leaves_or_does_not_read(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ended: list[str] = []

    async def views() -> AsyncGenerator[PageView, None]:
        while True:
            yield PageView(context={})
            await trio.sleep(1)

    async def never() -> Message:
        await trio.sleep_forever()
        raise AssertionError

    async def leaves() -> Message:
        await trio.sleep(10)
        return {"type": "http.disconnect"}

    async def stuck(message: Message) -> None:
        if message["type"] == "http.response.body":
            await trio.sleep_forever()

    async def read(_: Message) -> None: ...

    for receive, send, name in ((leaves, read, "left"), (never, stuck, "stuck")):
        stream = EventStream(views(), lambda _: "<p>", partial(ended.append, name))
        await stream({"type": "http"}, receive, send)
        assert ended[-1] == name
    assert SEND_S < trio.current_time() < STREAM_S
