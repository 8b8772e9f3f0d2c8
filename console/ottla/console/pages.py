"""PAGES, the table of the console's screens, actions and live parts.

Each view module has its own `PAGES`; to add a screen, add its module to `_MODULES`. The navigation
shows pages in this order.
"""

from ottla.console.page_types import Page
from ottla.console.views import (
    alerts,
    broker_changes,
    brokers,
    certificates,
    explain,
    features,
    long_actions,
    messages,
    metrics,
    moves,
    node_plots,
    overview,
    quorum,
    quotas,
    reports,
    security,
    settings,
    telemetry,
    tokens,
    topic,
    topics,
    transactions,
    voters,
)
from ottla.console.views.groups import (
    group_list,
    group_page,
    group_reset,
    queue_redrive,
    queues,
)
from ottla.console.views.storage import compaction, retention, tiers

_MODULES = (
    overview,
    brokers,
    broker_changes,
    quorum,
    voters,
    metrics,
    node_plots,
    transactions,
    compaction,
    retention,
    tiers,
    topics,
    topic,
    messages,
    group_list,
    group_page,
    group_reset,
    queues,
    queue_redrive,
    quotas,
    telemetry,
    security,
    tokens,
    certificates,
    alerts,
    explain,
    moves,
    long_actions,
    features,
    settings,
    reports,
)  # fmt: skip

PAGES: tuple[Page, ...] = tuple(page for module in _MODULES for page in module.PAGES)
