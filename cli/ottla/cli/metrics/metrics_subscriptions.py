"""`ottla metrics subscriptions list|set|delete`: shows and changes subscriptions to client metrics
(KIP-714)."""

import argparse
from collections.abc import Sequence
from typing import Any

from ottla.cli.common import print_json
from ottla.cli.options import option
from ottla.cli.outcomes import show
from ottla.cli.tables import Milliseconds, print_table
from ottla.cli.terminal import note
from ottla.cli.times import parse_duration
from ottla.cli.topics.change_arguments import DRY_RUN
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_telemetry import (
    INTERVAL_MS,
    MATCH,
    METRICS,
    MetricsSubscription,
)
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.settings.telemetry.client_metrics import MATCHABLE, match_patterns

EVERYBODY = "every client"
NOTHING = "nothing"


async def _list(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla metrics subscriptions list`: show every subscription to client metrics. Returns the
    exit code."""
    found = await admin.list_metrics_subscriptions()
    if arguments.format == "json":
        print_json([as_json(one) for one in found])
    else:
        rows = [
            (one.name, cells[METRICS], Milliseconds(one.interval_ms), cells[MATCH])
            for one in found
            for cells in [_cells(one)]
        ]
        print_table(("NAME", "METRICS", "INTERVAL", "CLIENTS"), rows)
    return 0


async def _set(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla metrics subscriptions set`: create or change a subscription to client metrics, and
    show its settings before and after. Returns the exit code."""
    name = arguments.name
    metrics = _prefixes(arguments.metrics)
    interval_ms = _interval_ms(arguments.interval)
    match = _match(arguments.match)
    if metrics is None and interval_ms is None and match is None:
        raise ConfigError(
            "ottla metrics subscriptions set", "needs --metrics, --interval or --match"
        )
    before = await admin.describe_metrics_subscription(name)
    if metrics is None and METRICS not in before.own:
        raise ConfigError(
            "--metrics",
            f"is missing: subscription {name!r} is new, and asks for nothing without; "
            "'*' is all that clients have",
        )
    await admin.set_metrics_subscription(
        name,
        metrics=metrics,
        interval_ms=interval_ms,
        match=match,
        is_rehearsal=arguments.dry_run,
    )
    after = MetricsSubscription(
        name,
        before.metrics if metrics is None else metrics,
        before.interval_ms if interval_ms is None else interval_ms,
        before.match if match is None else match,
    )
    was = _cells(before) if before.own else {}
    rows = [(key, was.get(key), now) for key, now in _cells(after).items()]
    return _show_changes(arguments, rows)


async def _delete(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla metrics subscriptions delete`: delete a subscription to client metrics. Raises
    RefusedError if it does not exist. Returns the exit code."""
    name = arguments.name
    before = await admin.describe_metrics_subscription(name)
    if not before.own:
        raise RefusedError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"there is no subscription {name!r}; see 'ottla metrics subscriptions list'",
        )
    await admin.delete_metrics_subscription(name, is_rehearsal=arguments.dry_run)
    rows = [(key, was, None) for key, was in _cells(before).items()]
    return _show_changes(arguments, rows)


def _show_changes(arguments: argparse.Namespace, rows: Sequence[Sequence[object]]) -> int:
    show(arguments, ("SETTING", "WAS", "NOW"), rows, command="metrics")
    if arguments.dry_run:
        note("nothing was changed (--dry-run)")
    return 0


def as_json(subscription: MetricsSubscription) -> dict[str, Any]:
    """Return a subscription to client metrics as the JSON object that the command prints."""
    return {
        "name": subscription.name,
        "metrics": list(subscription.metrics),
        "interval_ms": subscription.interval_ms,
        "match": list(subscription.match),
    }


def _cells(subscription: MetricsSubscription) -> dict[str, object]:
    return {
        METRICS: ",".join(subscription.metrics) or NOTHING,
        INTERVAL_MS: subscription.interval_ms,
        MATCH: ",".join(subscription.match) or EVERYBODY,
    }


def _prefixes(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _interval_ms(text: str | None) -> int | None:
    return None if text is None else round(parse_duration("--interval", text) * 1_000)


def _match(texts: Sequence[str] | None) -> tuple[str, ...] | None:
    if texts is None:
        return None
    found = tuple(text.strip() for text in texts if text.strip())
    for text in found:
        if "," in text:
            # The setting is a comma-separated list: a comma within an expression would split it in
            # two.
            raise ConfigError("--match", f"is {text!r}; an expression can have no comma in it")
        match_patterns([text])
    return found


VERBS = (
    admin_verb(
        "list",
        "list subscriptions",
        _list,
    ),
    admin_verb(
        "set",
        "create a subscription, or change the given parts of an existing one",
        _set,
        option("name NAME", "name of the subscription"),
        option(
            "--metrics PREFIX,…",
            "prefixes of names of metrics, such as org.apache.kafka.producer.; '*' for all",
        ),
        option("--interval TIME", "interval between pushes, 100ms to 1h (default: 5m)"),
        option(
            "--match NAME=REGEX",
            "selector of clients, '' for every client; may be repeated, then all must match; NAME "
            f"is one of {', '.join(sorted(MATCHABLE))}",
            action="append",
        ),
        DRY_RUN,
    ),
    admin_verb(
        "delete",
        "delete a subscription",
        _delete,
        option("name NAME", "name of the subscription"),
        DRY_RUN,
    ),
)
