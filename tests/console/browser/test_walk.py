"""A random walk over links, searches and harmless forms of the console.

No page may be an error of the console, a dead link, or put a message on the browser's console.
OTTLA_WALK_SECONDS is the length, 20 by default; OTTLA_WALK_SEED the seed, which a failure names.
In a cluster of several brokers, one is killed after a third of the walk, and started again after
two thirds.
"""

import os
import random
import time
from typing import Any

import pytest

from tests.cluster.conftest import Processes
from tests.console.browser.conftest import OpenTab
from tests.console.browser.watched_page import WatchedPage

SECONDS = float(os.environ.get("OTTLA_WALK_SECONDS", "20"))
SEED = int(os.environ.get("OTTLA_WALK_SEED", "1"))
WORDS = ("orders", "b", "<b>", "'", "0", "-1", "9999999999999999999", "a b", "\u202e", "%2F", "*")
HOME_SHARE = 0.05
FORM_SHARE = 0.3
KILLED_AT, STARTED_AT = 1 / 3, 2 / 3
HEALTHY_S, MARGIN_S = 120.0, 240.0
REFUSALS = (400, 404, 409)
"""Statuses of a form with wrong words. A link must lead to a page with status 200."""


class Fault:
    """Kill of a broker during a walk, and its return."""

    def __init__(self, processes: Processes | None) -> None:
        brokers = [] if processes is None else processes.named("broker")
        self._processes = processes if len(brokers) > 1 else None
        self._broker = brokers[-1] if brokers else ""

    def step(self, part: float) -> None:
        """Kill or start the broker if it is time. `part` is the passed part of the walk."""
        processes = self._processes
        if processes is None:
            return
        is_up = self._broker in processes.running
        if is_up and KILLED_AT < part < STARTED_AT:
            processes.kill(self._broker)
        elif not is_up and part >= STARTED_AT:
            processes.spawn(self._broker)

    def end(self) -> None:
        """Wait until the cluster is healthy, with the broker."""
        if self._processes is not None:
            self.step(1.0)
            self._processes.wait_healthy(HEALTHY_S)


class Walk:
    """The walk of one tab, which reads only: no form that is posted is sent."""

    def __init__(self, tab: WatchedPage, seed: int) -> None:
        self._tab = tab
        self._random = random.Random(seed)
        self.steps: list[str] = []
        self.addresses: set[str] = set()

    def step(self) -> None:
        """Follow a link or send a form of the shown page, or open the first page."""
        forms = self._visible("main form[method=get]")
        if self._random.random() < HOME_SHARE:
            self._go("/")
        elif forms and self._random.random() < FORM_SHARE:
            self._send(self._random.choice(forms))
        else:
            self._follow()
        self.addresses.add(self._tab.path())
        assert not self._tab.problems, (self.steps[-5:], self._tab.problems)

    def _go(self, where: str) -> None:
        self.steps.append(where)
        self._tab.open(where)

    def _follow(self) -> None:
        found = self._tab.tab.eval_on_selector_all(
            "a[href]:not([download])", "all => all.map(one => one.href)"
        )
        inside = [one for one in found if one.startswith(self._tab.root)]
        assert len(inside) == len(found), (self.steps[-5:], set(found) - set(inside))
        here = [one for one in inside if "#" not in one]
        self._go(self._random.choice(here).removeprefix(self._tab.root) if here else "/")

    def _send(self, form: Any) -> None:
        for field in form.query_selector_all("input:visible"):
            kind = field.get_attribute("type") or "text"
            if kind in ("text", "search"):
                field.fill(self._random.choice(WORDS))
            elif kind == "number":
                field.fill(self._random.choice(("0", "1", "7", "")))
        for field in form.query_selector_all("select:visible"):
            options = field.query_selector_all("option")
            field.select_option(self._random.choice(options).get_attribute("value"))
        address = form.evaluate("one => one.getAttribute('action') || location.pathname")
        sent = form.evaluate("one => new URLSearchParams(new FormData(one)).toString()")
        self.steps.append(f"form {address}?{sent}")
        response = self._tab.tab.goto(f"{self._tab.root}{address}?{sent}")
        assert response.status in (200, *REFUSALS), (self.steps[-5:], response.status)
        if response.status in REFUSALS:
            assert self._tab.text().strip()

    def _visible(self, selector: str) -> list[Any]:
        return [one for one in self._tab.tab.query_selector_all(selector) if one.is_visible()]


@pytest.mark.timeout(SECONDS + MARGIN_S)
def test_a_random_walk_finds_no_error(open_tab: OpenTab, processes: Processes | None) -> None:
    tab = open_tab()
    walk, fault = Walk(tab, SEED), Fault(processes)
    tab.open("/")
    start = time.monotonic()
    try:
        while (passed := time.monotonic() - start) < SECONDS:
            fault.step(passed / SECONDS)
            walk.step()
    finally:
        fault.end()
    print(f"{len(walk.steps)} steps over {len(walk.addresses)} addresses, seed {SEED}")
