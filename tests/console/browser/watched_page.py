"""A tab of a real browser that collects all problems which a reader of its console would see."""

from dataclasses import dataclass, field
from typing import Any

WIDTH = 1_280
PHONE_WIDTH = 390
HEIGHT = 900


@dataclass(slots=True)
class WatchedPage:
    """A tab of chromium, and the problems of the pages that it showed.

    Problems are console messages, exceptions of scripts, refused and failed requests, and answers
    of the status 500 and more.
    """

    tab: Any
    """`playwright.sync_api.Page`, which is no dependency of these tests' type check."""
    root: str
    """Address of the console, without a slash at the end."""
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tab.on("console", lambda message: self._on_console(message))
        self.tab.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))
        self.tab.on("response", lambda response: self._on_response(response))

    def open(self, where: str, status: int = 200) -> None:
        """Open an address of the console, which must have the given status."""
        response = self.tab.goto(self.root + where, wait_until="load")
        assert response is not None, where
        assert response.status == status, f"{where}: {response.status}\n{self.text()[:2_000]}"

    def text(self) -> str:
        """Return the visible text of the content."""
        return str(self.tab.locator("main").inner_text())

    def path(self) -> str:
        """Return path and query of the shown page."""
        return str(self.tab.url).removeprefix(self.root)

    def follow(self, text: str) -> None:
        """Click the link of the content with this text."""
        with self.tab.expect_navigation():
            self.tab.locator("main").get_by_role("link", name=text, exact=True).first.click()

    def submit(self, action: str, fields: dict[str, str]) -> None:
        """Fill in the form that is posted to a path, and send it as a reader does."""
        form = self.tab.locator(f'form[method=post][action="{action}"]').first
        folded = form.locator("xpath=ancestor::details[not(@open)]")
        for _ in range(folded.count()):
            folded.first.locator("summary").first.click()
        for name, value in fields.items():
            one = form.locator(f"[name={name}]").first
            if one.evaluate("one => one.tagName") == "SELECT":
                one.select_option(value)
            elif one.get_attribute("type") in ("checkbox", "radio"):
                one.set_checked(value != "")
            else:
                one.fill(value)
        with self.tab.expect_navigation():
            form.locator("button[type=submit]").first.click()

    def scrolls_sideways(self) -> bool:
        """Return True if the page is wider than the window."""
        return bool(
            self.tab.evaluate(
                "document.documentElement.scrollWidth > document.documentElement.clientWidth"
            )
        )

    def wide_elements(self) -> list[str]:
        """Return the elements that reach beyond the window, for the message of a failure."""
        return list(
            self.tab.evaluate(
                """() => [...document.querySelectorAll("body *")]
                .filter(one => one.getBoundingClientRect().right > innerWidth + 1
                  && !one.parentElement.closest(".scroll, pre"))
                .slice(0, 8).map(one => one.tagName + "." + one.className + ": "
                  + (one.textContent || "").trim().slice(0, 60))"""
            )
        )

    def _on_console(self, message: Any) -> None:
        # A page with a status from 400 on is a message, too: `_on_response` decides about these.
        if "Failed to load resource" not in message.text:
            self.problems.append(f"console {message.type}: {message.text} ({self.tab.url})")

    def _on_response(self, response: Any) -> None:
        status = response.status
        if status >= 500 or (status >= 400 and response.request.resource_type != "document"):
            self.problems.append(f"{status}: {response.url}")
