"""PAGES: the one table of the console's screens, actions and live parts.

Each view module has its own `PAGES`; to add a screen, add its module to `_MODULES`. The navigation
shows pages in this order.
"""

from ottla.console.page_types import Page
from ottla.console.views import overview

_MODULES = (
    overview,
)  # fmt: skip

PAGES: tuple[Page, ...] = tuple(page for module in _MODULES for page in module.PAGES)
