"""`ottla quota list|set|delete|explain|usage|export|apply`."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from ottla.cli.common import (
    add_cluster_arguments,
    add_format_argument,
    bootstrap_of,
    counted,
    number_of,
    print_json,
    run_async,
)
from ottla.cli.outcomes import show
from ottla.cli.quotas.quota_files import changes_to, exported, imported, owner_of
from ottla.cli.terminal import say
from ottla.client.admin import Admin, open_admin
from ottla.client.admin_parts.admin_quotas import QuotaChange, QuotaOwner
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.quota_limits import limits_of
from ottla.model.settings.quotas import CLIENT_KEYS

COLUMNS = ("USER", "CLIENT-ID", "IP", "KEY", "LIMIT")
EXPLAIN_COLUMNS = ("KEY", "USER", "CLIENT-ID", "LIMIT", "HOLDS")
USAGE_COLUMNS = (
    "BROKER", "USER", "CLIENT-ID", "KEY", "RATE", "LIMIT", "PERCENT", "THROTTLED-S",
)  # fmt: skip
DEFAULT = "<default>"
"""How Kafka's tools call the default of a type."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs of 'ottla quota'."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    list_ = verbs.add_parser("list", help="list every limit")
    set_ = verbs.add_parser("set", help="set limits of a user, a client id, both, or an address")
    delete_ = verbs.add_parser("delete", help="remove limits")
    explain_ = verbs.add_parser("explain", help="show which limit applies to a client, and why")
    usage_ = verbs.add_parser(
        "usage", help="show the rates of limited clients, and which are throttled"
    )
    export_ = verbs.add_parser("export", help="print all limits as JSON, for 'apply'")
    apply_ = verbs.add_parser("apply", help="set the limits of a file")
    for verb in (set_, delete_):
        verb.add_argument("--user", metavar="NAME", help=f"user; {DEFAULT} for all others")
        verb.add_argument(
            "--client-id", metavar="NAME", help=f"client id; {DEFAULT} for all others"
        )
        verb.add_argument("--ip", metavar="ADDRESS", help=f"IP address; {DEFAULT} for all others")
    set_.add_argument(
        "limits",
        nargs="+",
        metavar="KEY=LIMIT",
        help="limit, such as producer_byte_rate=5M (bytes per second)",
    )
    delete_.add_argument("keys", nargs="*", metavar="KEY", help="keys of the limits (default: all)")
    explain_.add_argument(
        "--user",
        default="ANONYMOUS",
        metavar="NAME",
        help="user of the client (default: %(default)s)",
    )
    explain_.add_argument(
        "--client-id", default="", metavar="NAME", help="client id (default: none)"
    )
    apply_.add_argument(
        "-f",
        "--file",
        required=True,
        metavar="FILE",
        help="file with limits, as 'ottla quota export' prints them",
    )
    apply_.add_argument(
        "--prune", action="store_true", help="also remove limits that are not in the file"
    )
    usage_.add_argument(
        "--limit",
        type=int,
        default=20,
        metavar="N",
        help="maximum number of clients of each quota and broker (default: %(default)s)",
    )
    for verb in (list_, set_, delete_, explain_, usage_, export_, apply_):
        add_cluster_arguments(verb)
    for verb in (list_, set_, delete_, explain_, usage_, apply_):
        add_format_argument(verb)


def run(arguments: argparse.Namespace) -> int:
    """Run one verb against the cluster."""

    async def body() -> int:
        async with open_admin(bootstrap_of(arguments)) as admin:
            return await VERBS[arguments.verb](admin, arguments)

    return run_async(body)


async def list_quotas(admin: Admin, arguments: argparse.Namespace) -> int:
    """List the limits of all owners."""
    found = await admin.describe_quotas()
    rows = [
        (*_owner_cells(owner), key, limit)
        for owner in sorted(found)
        for key, limit in sorted(found[owner].items())
    ]
    show(arguments, COLUMNS, [_readable(arguments, row) for row in rows], command="quota")
    return 0


async def set_quotas(admin: Admin, arguments: argparse.Namespace) -> int:
    """Set limits of one owner."""
    limits: dict[str, float | None] = {}
    for text in arguments.limits:
        key, _, value = text.partition("=")
        limits[key] = parse_limit(key, value)
    return await _change(admin, arguments, [QuotaChange(_owner(arguments), limits)])


async def delete_quotas(admin: Admin, arguments: argparse.Namespace) -> int:
    """Remove limits of one owner."""
    owner = _owner(arguments)
    present = (await admin.describe_quotas()).get(owner, {})
    missing = [key for key in arguments.keys if key not in present]
    if missing or not present:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"there is no {missing[0] if missing else 'limit'} to delete; see 'ottla quota list'",
        )
    gone: dict[str, float | None] = dict.fromkeys(arguments.keys or sorted(present))
    return await _change(admin, arguments, [QuotaChange(owner, gone)])


async def explain(admin: Admin, arguments: argparse.Namespace) -> int:
    """Show the eight levels of each quota for one client, and which of them holds."""
    found = await admin.describe_quotas()
    rows = []
    for key in sorted(CLIENT_KEYS):
        has_match = False
        for owner, limit in limits_of(found, key).considered(arguments.user, arguments.client_id):
            holds = limit is not None and not has_match
            has_match |= holds
            user, client_id, _ = _owner_cells(owner)
            rows.append((key, user, client_id, limit, "yes" if holds else None))
    show(arguments, EXPLAIN_COLUMNS, [_readable(arguments, row) for row in rows], command="quota")
    return 0


async def usage(admin: Admin, arguments: argparse.Namespace) -> int:
    """Show what limited clients use of each broker that answers, those throttled longest first."""
    nodes = sorted(one.node for one in (await admin.describe_cluster()).brokers)
    rows, refusals = [], []
    for node in nodes:
        try:
            found = await admin.describe_quota_usage(node, count_max=arguments.limit)
        except RefusedError as refusal:
            refusals.append(refusal)
            continue
        for one in sorted(found, key=lambda one: (-one.throttle_ms, -one.rate / one.limit)):
            of_limit = round(100 * one.rate / one.limit, 1)
            throttled_s = round(one.throttle_ms / 1_000, 3) if one.throttle_ms else None
            rate = round(one.rate, 3)
            rows.append(
                (node, one.user, one.client_id, one.key, rate, one.limit, of_limit, throttled_s)
            )
    show(
        arguments,
        USAGE_COLUMNS,
        [_readable(arguments, row) for row in rows],
        refusals,
        command="quota",
    )
    return 0


async def export(admin: Admin, arguments: argparse.Namespace) -> int:
    """Print every limit as a file for `apply`."""
    print_json(exported(await admin.describe_quotas()))
    return 0


async def apply(admin: Admin, arguments: argparse.Namespace) -> int:
    """Make the limits those of a file, all owners in one request."""
    try:
        content = json.loads(Path(arguments.file).read_text())
    except OSError as error:
        raise ConfigError("--file", f"{arguments.file}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError("--file", f"{arguments.file} is no JSON: {error}") from error
    wanted = imported(content)
    changes = changes_to(wanted, await admin.describe_quotas(), prunes=arguments.prune)
    if not changes and arguments.format != "json":
        say(f"nothing to change: {counted(len(wanted), 'owner')} have these limits already")
        return 0
    return await _change(admin, arguments, changes)


async def _change(
    admin: Admin, arguments: argparse.Namespace, changes: Sequence[QuotaChange]
) -> int:
    refusals = await admin.alter_quotas(changes) if changes else []
    rows = [
        (*_owner_cells(change.owner), key, limit)
        for change, refusal in zip(changes, refusals, strict=True)
        if refusal is None
        for key, limit in change.limits.items()
    ]
    show(
        arguments,
        COLUMNS,
        [_readable(arguments, row) for row in rows],
        [refusal for refusal in refusals if refusal is not None],
        command="quota",
    )
    return 0


def parse_limit(key: str, text: str) -> float:
    """Read a limit such as 12.5, 5M (millions) or 5Mi (of 1,048,576).

    Raises ConfigError for what is no number.
    """
    value = number_of(text)
    if value is None:
        found = f"is {text!r}" if text else "has no limit"
        raise ConfigError(key or "KEY=LIMIT", f"{found}; give a number, such as 12.5, 5M or 5Mi")
    return value


def _owner(arguments: argparse.Namespace) -> QuotaOwner:
    named = (
        ("user", arguments.user),
        ("client-id", arguments.client_id),
        ("ip", arguments.ip),
    )
    parts = [(type_, None if name == DEFAULT else name) for type_, name in named if name]
    if not parts:
        raise ConfigError("--user", "--client-id and --ip are missing; name at least one of them")
    return owner_of(parts)


def _owner_cells(owner: QuotaOwner) -> tuple[str | None, str | None, str | None]:
    cells = {part.type: DEFAULT if part.is_default else part.name for part in owner}
    return cells.get("user"), cells.get("client-id"), cells.get("ip")


def _readable(arguments: argparse.Namespace, row: tuple[object, ...]) -> tuple[object, ...]:
    """Return a row as it is for JSON, with short numbers for people."""
    if arguments.format == "json":
        return row
    return tuple(f"{cell:,.10g}" if isinstance(cell, float) else cell for cell in row)


VERBS = {
    "list": list_quotas,
    "set": set_quotas,
    "delete": delete_quotas,
    "explain": explain,
    "usage": usage,
    "export": export,
    "apply": apply,
}
