"""`ottla metrics subscriptions|clients|tail`: manages and shows the metrics that clients report
(KIP-714)."""

from ottla.cli.metrics import metrics_clients, metrics_subscriptions, metrics_tail
from ottla.cli.verbs import admin_verb, verbs_of

VERBS = (
    verbs_of(
        "subscriptions",
        "list, set and delete subscriptions to metrics of clients",
        *metrics_subscriptions.VERBS,
    ),
    admin_verb(
        "clients",
        "show clients that push metrics, which ones, and how often",
        metrics_clients.run,
        *metrics_clients.OPTIONS,
    ),
    admin_verb(
        "tail", "print metrics as clients push them", metrics_tail.run, *metrics_tail.OPTIONS
    ),
)
