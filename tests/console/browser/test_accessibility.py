"""axe-core on each screen, light and dark: no serious and no critical finding.

OTTLA_AXE names `axe.min.js` of axe-core 4.14.1 (`npm pack axe-core@4.14.1`).
"""

import pytest

from ottla.console.page_types import Page
from tests.console.browser.conftest import OpenTab
from tests.console.browser.screens import IDS, SCREENS, where

GRAVE = ("serious", "critical")


@pytest.mark.parametrize("page", SCREENS, ids=IDS)
def test_a_screen_has_no_serious_finding(open_tab: OpenTab, axe_script: str, page: Page) -> None:
    # The console's policy forbids scripts from elsewhere, such as this one.
    tab = open_tab(bypass_csp=True)
    tab.open(where(page))
    for theme in ("light", "dark"):
        tab.tab.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
        tab.tab.evaluate(axe_script)
        found = tab.tab.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        assert found["passes"], page.name
        grave = [
            (one["id"], [node["html"][:200] for node in one["nodes"]][:3])
            for one in found["violations"]
            if one["impact"] in GRAVE
        ]
        assert not grave, (theme, grave)
