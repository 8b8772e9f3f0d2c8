"""Page of delegation tokens: their owners and their expiry. Their passwords are never shown."""

from ottla.client.admin_parts.admin_tokens import TokenDescription
from ottla.console.absences import Absence, NeededRight, attempt
from ottla.console.page_types import Action, Page, PageRequest, PageView, UserRole
from ottla.console.sheets import (
    Cell,
    ListColumn,
    SheetPart,
    badge,
    choice_form,
    code,
    list_table,
    sheet_view,
    text,
    when,
)
from ottla.console.views.security import security_links, user_address
from ottla.model.errors import ErrorCode, RefusedError

READS = NeededRight(operation="describe-tokens", resource="user")

TOKEN = ("token", "Token")


async def tokens(request: PageRequest) -> PageView:
    """Return the page that lists the delegation tokens that the signed-in user may see."""
    found = await attempt("tokens", request.admin.describe_tokens(), READS)
    parts: list[SheetPart] = [security_links("Tokens")]
    if isinstance(found, Absence):
        return sheet_view("Tokens", [*parts, found.part(request.user)])
    table = list_table(
        "Delegation tokens",
        found,
        request.query,
        _columns(request.now_ms),
        text_of=lambda one: f"{one.token_id} {one.owner} {' '.join(one.renewers)}",
        empty="There is no delegation token that you may see.",
        empty_command="ottla token create",
        search_label="Search tokens",
    )
    parts.append(table)
    if found and table.listing is not None:
        names = tuple(
            (one.token_id, f"{one.token_id} of {one.owner}") for one in table.listing.rows
        )
        parts += [
            choice_form("token-renew", "Renew a token", "Renew", TOKEN, names),
            choice_form(
                "token-end",
                "End a token",
                "End the token now",
                TOKEN,
                names,
                values={"change": "end"},
            ),
        ]
    return sheet_view(
        "Tokens", parts, lead="Worker processes of a user log in with delegation tokens."
    )


async def renew(request: PageRequest) -> PageView:
    """Renew a delegation token for the period in the cluster's settings. Returns a redirect to the
    list of delegation tokens."""
    one = await _token_of(request)
    await request.admin.renew_token(one.hmac)
    return PageView(context={}, location="/tokens", notice=f"Token {one.token_id} was renewed.")


async def end(request: PageRequest) -> PageView:
    """Expire a delegation token immediately. Returns a redirect to the list of delegation
    tokens."""
    one = await _token_of(request)
    await request.admin.end_token(one.hmac)
    return PageView(context={}, location="/tokens", notice=f"Token {one.token_id} has ended.")


async def _token_of(request: PageRequest) -> TokenDescription:
    name = request.form.get("token", "")
    for one in await request.admin.describe_tokens():
        if one.token_id == name:
            return one
    raise RefusedError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, f"there is no token {name!r}")


def _columns(now_ms: int) -> tuple[ListColumn[TokenDescription], ...]:
    def state(one: TokenDescription) -> Cell:
        return badge("expired", "bad") if one.expires_ms <= now_ms else badge("valid", "good")

    return (
        ListColumn(title="Token", cell=lambda one: code(one.token_id)),
        ListColumn(
            title="Owner",
            key="owner",
            cell=lambda one: code(one.owner, user_address(one.owner)),
            order=lambda one: (one.owner, one.token_id),
        ),
        ListColumn(title="Renewers", cell=lambda one: text(", ".join(one.renewers))),
        ListColumn(title="Created", cell=lambda one: when(one.issued_ms)),
        ListColumn(title="Expires", key="expires", cell=lambda one: when(one.expires_ms)),
        ListColumn(title="Latest possible expiry", cell=lambda one: when(one.max_ms)),
        ListColumn(title="State", cell=state),
    )


PAGES = (
    Page(
        name="tokens",
        path="/tokens",
        title="Tokens",
        command="ottla token list",
        view=tokens,
        section="Security",
        key="d",
        actions=(
            Action(
                name="token-renew",
                path="/tokens/renew",
                command="ottla token renew {token}",
                run=renew,
                role=UserRole.ADMIN,
            ),
            Action(
                name="token-end",
                path="/tokens/{change}",
                command="ottla token end {token}",
                run=end,
                role=UserRole.ADMIN,
                confirms="change",
            ),
        ),
    ),
)
