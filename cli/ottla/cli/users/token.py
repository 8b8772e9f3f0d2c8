"""`ottla token create|list|renew|end`: manages delegation tokens (KIP-48)."""

import argparse
from base64 import b64encode

from ottla.cli.confirmation import YES, confirm_in_loop
from ottla.cli.options import option
from ottla.cli.outcomes import show
from ottla.cli.tables import Identifier
from ottla.cli.terminal import say
from ottla.cli.times import parse_duration
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_tokens import TokenDescription
from ottla.model.amounts import moment
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.visible_text import visible

CREATED = ("ID", "HMAC", "EXPIRES")
COLUMNS = ("ID", "OWNER", "RENEWERS", "EXPIRES", "LATEST-END")


async def create_token(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla token create`: create a delegation token, and show the settings for clients that log
    in with it. Returns the exit code."""
    lifetime_s = None
    if arguments.lifetime is not None:
        lifetime_s = parse_duration("--for", arguments.lifetime)
    token = await admin.create_token(renewers=arguments.renewers or (), lifetime_s=lifetime_s)
    row = (token.token_id, b64encode(token.hmac).decode(), moment(token.expires_ms))
    if arguments.format == "json":
        show(arguments, CREATED, [row], command="token")
        return 0
    # The HMAC is a password to be copied, and a table would break it at its edge.
    for name, value in zip(CREATED, row, strict=True):
        say(f"{name:{max(map(len, CREATED))}}  {value}")
    return 0


async def list_tokens(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla token list`: list the delegation tokens that the current user may see. Returns the
    exit code."""
    rows = [
        (
            Identifier(one.token_id),
            visible(one.owner),
            visible(",".join(one.renewers)) or "-",
            moment(one.expires_ms),
            moment(one.max_ms),
        )
        for one in sorted(
            await admin.describe_tokens(arguments.owners), key=lambda one: one.issued_ms
        )
    ]
    show(arguments, COLUMNS, rows, command="token")
    return 0


async def renew_token(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla token renew`: extend the lifetime of a delegation token. Returns the exit code."""
    period_s = None if arguments.period is None else parse_duration("--for", arguments.period)
    token = await _found(admin, arguments.token)
    expires_ms = await admin.renew_token(token.hmac, period_s=period_s)
    say(f"{token.token_id} holds until {moment(expires_ms)}")
    return 0


async def end_token(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla token end`: expire a delegation token immediately if the user confirms. Returns the
    exit code."""
    token = await _found(admin, arguments.token)
    question = f"end token {token.token_id} of {visible(token.owner)}, and its sessions?"
    if not await confirm_in_loop(arguments, question):
        return 0
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


VERBS = (
    admin_verb(
        "create",
        "create a token for the current user",
        create_token,
        option(
            "--renewer USER",
            "user who may renew and end it; may be repeated",
            action="append",
            dest="renewers",
        ),
        option("--for TIME", "maximum lifetime (default: the cluster's, 7d)", dest="lifetime"),
    ),
    admin_verb(
        "list",
        "list tokens, without their secrets",
        list_tokens,
        option(
            "--owner USER",
            "owner of the tokens; may be repeated (default: all)",
            action="append",
            dest="owners",
        ),
    ),
    admin_verb(
        "renew",
        "extend the lifetime of a token",
        renew_token,
        option(
            "--for TIME", "time until the new expiry (default: the cluster's, 1d)", dest="period"
        ),
        option("token ID", "id of the token"),
        has_format=False,
    ),
    admin_verb(
        "end",
        "end a token at once, and its sessions",
        end_token,
        option("token ID", "id of the token"),
        YES,
        has_format=False,
    ),
)
