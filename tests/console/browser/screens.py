"""The address of each screen of PAGES in a cluster that `busy_data.fill` filled."""

from ottla.console.links import address
from ottla.console.page_types import Page
from ottla.console.pages import PAGES
from ottla.console.views.security import acl_fields
from tests.console.browser.busy_data import ACL, GROUP, QUEUE, REPORT, TRANSACTION, USER

VALUES = {
    "broker": "1",
    "client": "absent",
    "file": "report.md",
    "group": GROUP,
    "id": TRANSACTION,
    "metric": "partitions.led",
    "offset": "0",
    "partition": "0",
    "report": REPORT,
    "topic": "orders",
    "user": USER,
}
VALUES_OF = {
    "message": {"topic": "clicks"},
    "queue": {"group": QUEUE},
    "queue-records": {"group": QUEUE},
    "queue-redrive": {"group": QUEUE},
    "queue-reset": {"group": QUEUE},
}
QUERIES = {
    "acl": acl_fields(ACL),
    "find-transactions": {"topic": "orders"},
}


def where(page: Page) -> str:
    """Return path and query of a screen."""
    values = {**VALUES, **VALUES_OF.get(page.name, {})}
    names = [part[1:-1] for part in page.path.split("/") if part.startswith("{")]
    return address(page.path, {name: values[name] for name in names}, QUERIES.get(page.name, {}))


LONG_ACTION = "long-action"
"""Name of the page of an action that runs: `test_changes_of_nodes.py` starts one and reads it."""
SCREENS = [page for page in PAGES if page.name != LONG_ACTION]
IDS = [page.name for page in SCREENS]
