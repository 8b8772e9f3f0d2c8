"""Each screen of the console in a real browser: it is read, fits a phone, and follows the theme.

Keys, shared addresses, live parts and searches are tested with the screens that have them.
"""

import pytest

from ottla.console.page_types import Page
from tests.console.browser.busy_data import TIERED
from tests.console.browser.conftest import OpenTab
from tests.console.browser.screens import IDS, SCREENS, where
from tests.console.browser.watched_page import PHONE_WIDTH, WIDTH

DARK = "rgb(18, 25, 27)"
LIGHT = "rgb(247, 248, 248)"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.mark.parametrize("page", SCREENS, ids=IDS)
def test_a_screen_is_read_on_a_desk_and_on_a_phone(open_tab: OpenTab, page: Page) -> None:
    tab = open_tab()
    tab.open(where(page))
    heading = tab.tab.locator("main h1")
    if heading.count():  # the download of a report's file is a file
        assert heading.inner_text().strip()
        assert "not available on this cluster" not in tab.text()
        if page.section:
            current = tab.tab.locator('nav#navigation a[aria-current="page"]')
            assert current.inner_text().split("\n")[0].startswith(page.title)
        links = tab.tab.locator("main a[href]:visible")
        if links.count():
            links.first.click()
            tab.tab.wait_for_load_state()
    phone = open_tab(width=PHONE_WIDTH, has_touch=True)
    phone.open(where(page))
    assert not phone.scrolls_sideways(), phone.wide_elements()


@pytest.mark.parametrize(("scheme", "color"), [("dark", DARK), ("light", LIGHT)])
def test_the_theme_follows_the_system_and_the_reader(
    open_tab: OpenTab, scheme: str, color: str
) -> None:
    tab = open_tab(color_scheme=scheme)
    tab.open("/")
    assert tab.tab.evaluate(BACKGROUND) == color
    tab.tab.get_by_role("button", name="Light or dark").click()
    other = tab.tab.evaluate(BACKGROUND)
    assert other == (LIGHT if color == DARK else DARK)
    tab.open("/topics")
    assert tab.tab.evaluate(BACKGROUND) == other


def test_keys_open_pages_and_move_to_the_search(open_tab: OpenTab) -> None:
    tab = open_tab()
    tab.open("/")
    tab.tab.keyboard.press("g")
    with tab.tab.expect_navigation():
        tab.tab.keyboard.press("t")
    assert tab.path() == "/topics"
    tab.tab.keyboard.press("?")
    assert tab.tab.locator("dialog#keys").is_visible()
    tab.tab.keyboard.press("Escape")
    tab.tab.keyboard.press("/")
    tab.tab.keyboard.type("click")
    tab.tab.locator("#rows").get_by_text("orders", exact=True).wait_for(state="detached")
    assert tab.tab.locator("#rows").get_by_text("clicks").is_visible()
    assert "q=click" in tab.path()


def test_an_address_restores_the_view(open_tab: OpenTab) -> None:
    first = open_tab()
    first.open("/topics?q=s&sort=-name")
    first.tab.locator("#rows th a").first.click()
    first.tab.wait_for_load_state()
    second = open_tab()
    second.open(first.path())
    names = "all => all.map(one => one.innerText)"
    cells = "#rows tbody tr td:first-child"
    assert second.tab.locator("#q").input_value() == "s"
    assert second.tab.eval_on_selector_all(cells, names) == first.tab.eval_on_selector_all(
        cells, names
    )


def test_the_menu_of_a_phone_opens_and_leads_to_a_page(open_tab: OpenTab) -> None:
    phone = open_tab(width=PHONE_WIDTH, has_touch=True)
    phone.open("/")
    assert not phone.tab.locator("#navigation").is_visible()
    phone.tab.get_by_role("button", name="Menu").click()
    with phone.tab.expect_navigation():
        phone.tab.locator("#navigation").get_by_text("Groups").click()
    assert phone.path() == "/groups"


def test_the_overview_is_renewed_without_a_reload(open_tab: OpenTab) -> None:
    tab = open_tab()
    tab.open("/")
    tab.tab.locator("[data-live-state]", has_text="Live").wait_for()


def test_an_unknown_address_is_a_page_with_a_way_on(open_tab: OpenTab) -> None:
    tab = open_tab()
    tab.open("/no-such-page", status=404)
    assert "there is no page at this address" in tab.text()
    tab.open("/topics/absent", status=404)
    assert tab.tab.locator("main a[href]").count()


NOON_MS = 1_790_000_000_000
LABELS = """(times) => {
  const drawn = [], fill = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text) {
    drawn.push(text);
    fill.apply(this, arguments);
  };
  const figure = document.createElement("figure"), canvas = document.createElement("div");
  canvas.className = "canvas";
  figure.append(canvas);
  figure.dataset.plot = JSON.stringify({
    unit: "count", times: times, series: [["a", times.map(() => 1)]],
  });
  document.querySelector("main").append(figure);
  document.dispatchEvent(new Event("htmx:after:swap"));
  return new Promise((done) => setTimeout(() => done(drawn), 100));
}"""


@pytest.mark.parametrize("times", [[NOON_MS], [NOON_MS, NOON_MS + 300]])
def test_a_time_axis_shows_the_time_of_few_samples(open_tab: OpenTab, times: list[int]) -> None:
    tab = open_tab()
    tab.open("/topics")
    drawn = tab.tab.evaluate(LABELS, times)
    clock = [one for one in drawn if ":" in one]
    assert clock
    assert len(clock) == len(set(clock))
    assert not any("2027" in one for one in drawn)


def test_a_tiered_topic_is_seen_in_both_tiers(open_tab: OpenTab) -> None:
    for width in (WIDTH, PHONE_WIDTH):
        tab = open_tab(width=width)
        tab.open("/tiers")
        tab.tab.get_by_role("region", name="Tiered topics").get_by_text(TIERED).wait_for()
        limits = tab.tab.get_by_role("region", name="Limits of the bandwidth")
        assert "95.4 MiB" in limits.inner_text()
        assert not tab.scrolls_sideways(), tab.wide_elements()
        tab.follow(TIERED)
        tab.tab.get_by_text("Records only there").wait_for()
        assert not tab.scrolls_sideways(), tab.wide_elements()
