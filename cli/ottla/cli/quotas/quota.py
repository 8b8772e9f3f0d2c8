"""`ottla quota list|set|delete|explain|usage|export|apply`: shows and changes the quotas of users,
client ids and IP addresses."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from ottla.cli.common import (
    counted,
    number_of,
    print_json,
)
from ottla.cli.options import option
from ottla.cli.outcomes import show
from ottla.cli.quotas.quota_files import changes_to, exported, imported, owner_of
from ottla.cli.tables import Milliseconds
from ottla.cli.terminal import say
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_quotas import QuotaChange, QuotaOwner
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.quotas.quota_limits import limits_of
from ottla.model.settings.quotas import CLIENT_KEYS

COLUMNS = ("USER", "CLIENT-ID", "IP", "KEY", "LIMIT")
EXPLAIN_COLUMNS = ("KEY", "USER", "CLIENT-ID", "LIMIT", "HOLDS")
USAGE_COLUMNS = (
    "BROKER", "USER", "CLIENT-ID", "KEY", "RATE", "LIMIT", "PERCENT", "THROTTLED",
)  # fmt: skip
USAGE_KEYS = (
    "broker", "user", "client_id", "key", "rate", "limit", "percent", "throttled_s",
)  # fmt: skip
DEFAULT = "<default>"
"""Name that Kafka's tools use for the default entity of a type. Its quotas apply to all users or
client ids without quotas of their own."""


async def list_quotas(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla quota list`: list the quotas of all users, client ids and IP addresses. Returns the
    exit code."""
    found = await admin.describe_quotas()
    rows = [
        (*_owner_cells(owner), key, limit)
        for owner in sorted(found)
        for key, limit in sorted(found[owner].items())
    ]
    show(arguments, COLUMNS, [_readable(arguments, row) for row in rows], command="quota")
    return 0


async def set_quotas(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla quota set`: set quotas of one user, client id or IP address. Returns the exit code."""
    limits: dict[str, float | None] = {}
    for text in arguments.limits:
        key, _, value = text.partition("=")
        limits[key] = parse_limit(key, value)
    return await _change(admin, arguments, [QuotaChange(_owner(arguments), limits)])


async def delete_quotas(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla quota delete`: remove quotas of one user, client id or IP address. Returns the exit
    code."""
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
    """`ottla quota explain`: show the eight levels at which each quota of a client may be set, and
    the level that applies. Returns the exit code."""
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
    """`ottla quota usage`: show the usage of quotas by clients on each broker that responds.
    Clients with the longest throttle time are first. Returns the exit code."""
    nodes = sorted(one.node for one in (await admin.describe_cluster()).brokers)
    rows: list[tuple[object, ...]] = []
    refusals = []
    for node in nodes:
        try:
            found = await admin.describe_quota_usage(node, count_max=arguments.limit)
        except RefusedError as refusal:
            refusals.append(refusal)
            continue
        for one in sorted(found, key=lambda one: (-one.throttle_ms, -one.rate / one.limit)):
            of_limit = round(100 * one.rate / one.limit, 1)
            throttled: object = None
            if one.throttle_ms:
                is_json = arguments.format == "json"
                throttled_s = round(one.throttle_ms / 1_000, 3)
                throttled = throttled_s if is_json else Milliseconds(one.throttle_ms)
            rate = round(one.rate, 3)
            rows.append(
                (node, one.user, one.client_id, one.key, rate, one.limit, of_limit, throttled)
            )
    show(
        arguments,
        USAGE_COLUMNS,
        [_readable(arguments, row) for row in rows],
        refusals,
        command="quota",
        keys=USAGE_KEYS,
    )
    return 0


async def export(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla quota export`: print all quotas in the form of a file that `ottla quota apply`
    accepts. Returns the exit code."""
    print_json(exported(await admin.describe_quotas()))
    return 0


async def apply(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla quota apply`: replace all quotas of the cluster by the quotas in a file, in one
    request. Returns the exit code."""
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
    """Parse the value of a quota such as 12.5, 5M (5 million) or 5Mi (5 × 1,048,576). Returns the
    number.

    Raises ConfigError if the text is not a number.
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
    """Return a table row of quotas with full numbers for JSON, or with abbreviated numbers for a
    table."""
    if arguments.format == "json":
        return row
    return tuple(f"{cell:,.10g}" if isinstance(cell, float) else cell for cell in row)


VERBS = (
    admin_verb("list", "list every limit", list_quotas),
    admin_verb(
        "set",
        "set limits of a user, a client id, both, or an address",
        set_quotas,
        option("--user NAME", f"user; {DEFAULT} for all others"),
        option("--client-id NAME", f"client id; {DEFAULT} for all others"),
        option("--ip ADDRESS", f"IP address; {DEFAULT} for all others"),
        option("limits KEY=LIMIT ...", "limit, such as producer_byte_rate=5M (bytes per second)"),
    ),
    admin_verb(
        "delete",
        "remove limits",
        delete_quotas,
        option("--user NAME", f"user; {DEFAULT} for all others"),
        option("--client-id NAME", f"client id; {DEFAULT} for all others"),
        option("--ip ADDRESS", f"IP address; {DEFAULT} for all others"),
        option("keys KEY", "keys of the limits (default: all)", nargs="*"),
    ),
    admin_verb(
        "explain",
        "show which limit applies to a client, and why",
        explain,
        option("--user NAME", "user of the client (default: %(default)s)", default="ANONYMOUS"),
        option("--client-id NAME", "client id (default: none)", default=""),
    ),
    admin_verb(
        "usage",
        "show the rates of limited clients, and which are throttled",
        usage,
        option(
            "--limit N",
            "maximum number of clients of each quota and broker (default: %(default)s)",
            type=int,
            default=20,
        ),
    ),
    admin_verb("export", "print all limits as JSON, for 'apply'", export, has_format=False),
    admin_verb(
        "apply",
        "set the limits of a file",
        apply,
        option(
            "-f --file FILE", "file with limits, as 'ottla quota export' prints them", required=True
        ),
        option("--prune", "also remove limits that are not in the file"),
    ),
)
