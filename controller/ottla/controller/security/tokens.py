"""Delegation tokens: creation, renewal and expiry, and the removal of expired ones.

A decision is made for the principal that a broker forwards.  The broker has checked whether the
principal may request another user's token; this module checks it again, with the ACLs of the
controller's image.
"""

from base64 import urlsafe_b64encode

from ottla.controller.decision import Context, Decision, decided
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import delegation_token_record, remove_delegation_token_record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.limits import INT64_MAX
from ottla.model.security.acls import ANONYMOUS, AclOperation, ResourceType
from ottla.model.security.delegation_tokens import USER_TYPE, DelegationToken, token_hmac
from ottla.wire.messages.create_delegation_token_request import CreateDelegationTokenRequest
from ottla.wire.messages.create_delegation_token_response import CreateDelegationTokenResponse
from ottla.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from ottla.wire.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
from ottla.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from ottla.wire.messages.renew_delegation_token_response import RenewDelegationTokenResponse

TOKENS_MAX = 100_000
"""Maximum number of delegation tokens in a cluster. Every broker stores them in memory, and a
renewal searches all of them for an HMAC."""

TOKENS_OF_OWNER_MAX = 1_000
"""Maximum number of delegation tokens of one owner. Every user that logs in may create tokens."""

RENEWERS_MAX = 100
NAME_CHARS_MAX = 1_024
"""Maximum length in characters of the name of a delegation token's principal. Every broker stores
the name in memory."""

REMOVALS_MAX = 1_000
"""Maximum number of expired delegation tokens that one decision removes."""


def create_token(
    image: MetadataImage, context: Context, request: CreateDelegationTokenRequest
) -> Decision[CreateDelegationTokenResponse]:
    """Return the decision on a CreateDelegationToken request: create a token for the requester, or
    for the owner in the request."""
    secret, requester = _checked(context)
    owner = requester
    if request.owner_principal_name:
        owner = _principal(request.owner_principal_type or "", request.owner_principal_name)
    is_allowed = owner == requester or context.requester.allows(
        AclOperation.CREATE_TOKENS, ResourceType.USER, owner
    )
    if not is_allowed:
        raise RefusedError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if len(request.renewers) > RENEWERS_MAX:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, f"A token has at most {RENEWERS_MAX} renewers."
        )
    renewers = tuple(
        dict.fromkeys(
            _principal(one.principal_type, one.principal_name) for one in request.renewers
        )
    )
    tokens = image.delegation_tokens
    of_owner = sum(one.owner == owner for one in tokens.values())
    if len(tokens) >= TOKENS_MAX or of_owner >= TOKENS_OF_OWNER_MAX:
        raise RefusedError(ErrorCode.POLICY_VIOLATION, f"There are too many tokens of {owner}.")
    now_ms, config = context.wall_ms(), context.config.tokens
    lifetime_ms = config.max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    token = DelegationToken(
        id=_new_id(image, context),
        owner=owner,
        requester=requester,
        renewers=renewers,
        issued_ms=now_ms,
        max_ms=_sum(now_ms, lifetime_ms),
        expires_ms=_sum(now_ms, min(lifetime_ms, config.expiry_time_ms)),
    )
    owner_type, _, owner_name = owner.partition(":")
    requester_type, _, requester_name = requester.partition(":")
    reply = CreateDelegationTokenResponse(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.id,
        hmac=token_hmac(secret, token.id),
    )
    return decided(image, (delegation_token_record(token),), reply)


def renew_token(
    image: MetadataImage, context: Context, request: RenewDelegationTokenRequest
) -> Decision[RenewDelegationTokenResponse]:
    """Return the decision on a RenewDelegationToken request: extend a token's expiry time, at most
    to its maximum lifetime."""
    token = _found(image, context, bytes(request.hmac))
    config = context.config.tokens
    period_ms = config.expiry_time_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    expires_ms = min(token.max_ms, _sum(context.wall_ms(), period_ms))
    return decided(
        image,
        (delegation_token_record(token, expires_ms=expires_ms),),
        RenewDelegationTokenResponse(expiry_timestamp_ms=expires_ms),
    )


def expire_token(
    image: MetadataImage, context: Context, request: ExpireDelegationTokenRequest
) -> Decision[ExpireDelegationTokenResponse]:
    """Return the decision on an ExpireDelegationToken request: make a token expire at once, or
    after a period."""
    token = _found(image, context, bytes(request.hmac))
    now_ms, period_ms = context.wall_ms(), request.expiry_time_period_ms
    if period_ms < 0:
        record, expires_ms = remove_delegation_token_record(token.id), now_ms
    else:
        expires_ms = min(token.max_ms, _sum(now_ms, period_ms))
        record = delegation_token_record(token, expires_ms=expires_ms)
    return decided(image, (record,), ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_ms))


def remove_expired(image: MetadataImage, now_ms: int) -> Decision[bool]:
    """Return the decision that removes expired delegation tokens. The reply is True if there may be
    more."""
    over = [one.id for one in image.delegation_tokens.values() if not one.holds_at(now_ms)]
    some = over[:REMOVALS_MAX]
    return decided(image, map(remove_delegation_token_record, some), len(some) < len(over))


def _checked(context: Context) -> tuple[str, str]:
    """Return the secret key for delegation tokens, and the principal of the requester. Raises
    RefusedError if tokens are disabled, or not allowed for this client."""
    secret, requester = context.config.tokens.secret, context.requester
    if requester.is_token or requester.principal in ("", ANONYMOUS):
        raise RefusedError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if secret is None:
        raise RefusedError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return secret, requester.principal


def _found(image: MetadataImage, context: Context, mac: bytes) -> DelegationToken:
    """Return the delegation token that has this HMAC. Raises RefusedError if there is no such token
    that the requester may use."""
    secret, requester = _checked(context)
    for token in image.delegation_tokens.values():
        if token_hmac(secret, token.id) == mac:
            break
    else:
        raise RefusedError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    if not token.holds_at(context.wall_ms()):
        raise RefusedError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    if not token.may_be_renewed_by(requester):
        raise RefusedError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    return token


def _principal(type_: str, name: str) -> str:
    if type_ != USER_TYPE:
        raise RefusedError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    if not 0 < len(name) <= NAME_CHARS_MAX:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, f"A principal's name has 1 to {NAME_CHARS_MAX} characters."
        )
    return f"{type_}:{name}"


def _new_id(image: MetadataImage, context: Context) -> str:
    """Return a new delegation token id in Kafka's format: 22 characters. The first character is not
    a dash."""
    while True:
        found = urlsafe_b64encode(context.rng.uuid().bytes).decode().rstrip("=")
        if not found.startswith("-") and found not in image.delegation_tokens:
            return found


def _sum(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, INT64_MAX)
