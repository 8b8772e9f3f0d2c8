"""`ottla metrics subscriptions list|set|delete`: what clients are asked to report."""

import argparse
from collections.abc import Sequence
from typing import Any

from ottla.cli.common import print_json, print_table
from ottla.cli.outcomes import show
from ottla.cli.terminal import note
from ottla.cli.times import parse_duration
from ottla.cli.topics.change_arguments import add_dry_run_argument
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_telemetry import (
    INTERVAL_MS,
    MATCH,
    METRICS,
    MetricsSubscription,
)
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.settings.client_metrics import MATCHABLE, match_patterns

EVERYBODY = "every client"
NOTHING = "nothing"


def configure(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Declare the verbs; return their parsers."""
    verbs = parser.add_subparsers(dest="subscriptions", required=True, metavar="VERB")
    list_ = verbs.add_parser("list", help="list subscriptions")
    set_ = verbs.add_parser(
        "set", help="create a subscription, or change the given parts of an existing one"
    )
    set_.add_argument("name", metavar="NAME", help="name of the subscription")
    set_.add_argument(
        "--metrics",
        metavar="PREFIX,…",
        help="prefixes of names of metrics, such as org.apache.kafka.producer.; '*' for all",
    )
    set_.add_argument(
        "--interval", metavar="TIME", help="interval between pushes, 100ms to 1h (default: 5m)"
    )
    set_.add_argument(
        "--match",
        action="append",
        metavar="NAME=REGEX",
        help="selector of clients, '' for every client; may be repeated, then all must match; "
        f"NAME is one of {', '.join(sorted(MATCHABLE))}",
    )
    delete_ = verbs.add_parser("delete", help="delete a subscription")
    delete_.add_argument("name", metavar="NAME", help="name of the subscription")
    for verb in (set_, delete_):
        add_dry_run_argument(verb)
    return [list_, set_, delete_]


async def run(admin: Admin, arguments: argparse.Namespace) -> int:
    """Run one verb against the cluster."""
    await VERBS[arguments.subscriptions](admin, arguments)
    if getattr(arguments, "dry_run", False):
        note("nothing was changed (--dry-run)")
    return 0


async def list_(admin: Admin, arguments: argparse.Namespace) -> None:
    """Show every subscription."""
    found = await admin.list_metrics_subscriptions()
    if arguments.format == "json":
        print_json([as_json(one) for one in found])
        return
    rows = [(one.name, *_cells(one).values()) for one in found]
    print_table(("NAME", "METRICS", "INTERVAL MS", "CLIENTS"), rows)


async def set_(admin: Admin, arguments: argparse.Namespace) -> None:
    """Make a subscription or change one; show what it was and what it is."""
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
    show(arguments, ("SETTING", "WAS", "NOW"), rows, command="metrics")


async def delete(admin: Admin, arguments: argparse.Namespace) -> None:
    """Delete a subscription; refuse where there is none."""
    name = arguments.name
    before = await admin.describe_metrics_subscription(name)
    if not before.own:
        raise RefusedError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"there is no subscription {name!r}; see 'ottla metrics subscriptions list'",
        )
    await admin.delete_metrics_subscription(name, is_rehearsal=arguments.dry_run)
    rows = [(key, was, None) for key, was in _cells(before).items()]
    show(arguments, ("SETTING", "WAS", "NOW"), rows, command="metrics")


VERBS = {"list": list_, "set": set_, "delete": delete}


def as_json(subscription: MetricsSubscription) -> dict[str, Any]:
    """Return a subscription for machines."""
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
            # The setting is a list with commas between; the broker would see two halves.
            raise ConfigError("--match", f"is {text!r}; an expression can have no comma in it")
        match_patterns([text])
    return found
