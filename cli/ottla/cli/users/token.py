"""`ottla token create|list|renew|end`: delegation tokens (KIP-48)."""

import argparse
from base64 import b64encode
from datetime import UTC, datetime

from ottla.cli.common import (
    add_cluster_arguments,
    add_format_argument,
    bootstrap_of,
    run_async,
)
from ottla.cli.outcomes import show
from ottla.cli.terminal import say
from ottla.cli.times import parse_duration
from ottla.client.admin import Admin, open_admin
from ottla.client.admin_parts.admin_tokens import TokenDescription
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.visible_text import visible

COLUMNS = ("ID", "OWNER", "RENEWERS", "EXPIRES", "LATEST-END")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs of 'ottla token'."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    create = verbs.add_parser("create", help="make a token for the user who asks")
    list_ = verbs.add_parser("list", help="list tokens, without what they are proven by")
    renew = verbs.add_parser("renew", help="let a token hold for longer")
    end = verbs.add_parser("end", help="end a token at once, and its sessions")
    create.add_argument(
        "--renewer",
        action="append",
        dest="renewers",
        metavar="USER",
        help="user who may renew and end it (again: more)",
    )
    create.add_argument(
        "--for", dest="lifetime", metavar="TIME", help="latest end (default: the cluster's, 7d)"
    )
    list_.add_argument(
        "--owner", action="append", dest="owners", metavar="USER", help="only of this user"
    )
    renew.add_argument("--for", dest="period", metavar="TIME", help="default: the cluster's, 1d")
    for verb in (renew, end):
        verb.add_argument("token", metavar="ID", help="id of the token")
    for verb in (create, list_, renew, end):
        add_cluster_arguments(verb)
    for verb in (create, list_):
        add_format_argument(verb)


def run(arguments: argparse.Namespace) -> int:
    """Run one verb against the cluster."""

    async def body() -> int:
        async with open_admin(bootstrap_of(arguments)) as admin:
            return await VERBS[arguments.verb](admin, arguments)

    return run_async(body)


async def create_token(admin: Admin, arguments: argparse.Namespace) -> int:
    """Make a token, and show what workers log in with."""
    lifetime_s = None
    if arguments.lifetime is not None:
        lifetime_s = parse_duration("--for", arguments.lifetime)
    token = await admin.create_token(renewers=arguments.renewers or (), lifetime_s=lifetime_s)
    row = (token.token_id, b64encode(token.hmac).decode(), _shown(token.expires_ms))
    show(arguments, ("ID", "HMAC", "EXPIRES"), [row], command="token")
    return 0


async def list_tokens(admin: Admin, arguments: argparse.Namespace) -> int:
    """List the tokens that the user who asks may see."""
    rows = [
        (
            one.token_id,
            visible(one.owner),
            visible(",".join(one.renewers)) or "-",
            _shown(one.expires_ms),
            _shown(one.max_ms),
        )
        for one in sorted(
            await admin.describe_tokens(arguments.owners), key=lambda one: one.issued_ms
        )
    ]
    show(arguments, COLUMNS, rows, command="token")
    return 0


async def renew_token(admin: Admin, arguments: argparse.Namespace) -> int:
    """Let a token hold for longer."""
    period_s = None if arguments.period is None else parse_duration("--for", arguments.period)
    token = await _found(admin, arguments.token)
    expires_ms = await admin.renew_token(token.hmac, period_s=period_s)
    say(f"{token.token_id} holds until {_shown(expires_ms)}")
    return 0


async def end_token(admin: Admin, arguments: argparse.Namespace) -> int:
    """End a token."""
    token = await _found(admin, arguments.token)
    await admin.end_token(token.hmac)
    say(f"{token.token_id} has ended")
    return 0


async def _found(admin: Admin, token_id: str) -> TokenDescription:
    for one in await admin.describe_tokens():
        if one.token_id == token_id:
            return one
    raise RefusedError(
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
        f"{visible(token_id)} is no token that you may see; see 'ottla token list'",
    )


def _shown(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="seconds")


VERBS = {"create": create_token, "list": list_tokens, "renew": renew_token, "end": end_token}
