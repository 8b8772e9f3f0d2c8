"""Handlers of delegation tokens. Changes are forwarded to the controller; descriptions are answered
by this broker.

A client that is not authenticated is refused. A client that authenticated with a token is also
refused, because a token must not create other tokens.
"""

from collections.abc import Iterator

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.security.acls import ANONYMOUS_USER, AclOperation, ResourceType
from ottla.model.security.delegation_tokens import DelegationToken, token_hmac
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.authorization.questions import may
from ottla.node.network.dispatch import Handler, HandlerResult, RequestContext
from ottla.node.network.steps import Answer, StepPace
from ottla.wire.codec_types import Message
from ottla.wire.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
from ottla.wire.messages.describe_delegation_token_response import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from ottla.wire.refusals import refuse


class DelegationTokenApis:
    """Handler of CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and
    DescribeDelegationToken."""

    def __init__(self, metadata: MetadataCache, secret: str | None, pass_on: Handler) -> None:
        self._metadata = metadata
        self._secret = secret
        self._pass_on = pass_on

    def handle_change(self, context: RequestContext, request: Message) -> HandlerResult:
        """Forward a request that changes delegation tokens to the controller. The request is
        refused if tokens are disabled, or if the client may not have tokens."""
        code = self._refusal(context)
        if code is not ErrorCode.NONE:
            return refuse(request, RefusedError(code), context.api_version)
        return self._pass_on(context, request)

    def handle_describe(
        self, context: RequestContext, request: DescribeDelegationTokenRequest
    ) -> HandlerResult:
        """Answer the request with the delegation tokens that the client may see. If the request
        names owners, only their tokens are returned."""
        code = self._refusal(context)
        if code is not ErrorCode.NONE:
            return DescribeDelegationTokenResponse(error_code=code)
        return self._described(context, request)

    def _refusal(self, context: RequestContext) -> ErrorCode:
        if context.peer.user == ANONYMOUS_USER or context.peer.is_token_authenticated:
            return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        if self._secret is None:
            return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        return ErrorCode.NONE

    def _described(
        self, context: RequestContext, request: DescribeDelegationTokenRequest
    ) -> Answer:
        secret, pace = self._secret, StepPace()
        assert secret is not None
        owners = None
        if request.owners is not None:
            owners = {f"{one.principal_type}:{one.principal_name}" for one in request.owners}
        found: list[DescribedDelegationToken] = []
        for token in self._metadata.image.delegation_tokens.values():
            if (owners is None or any(map(token.concerns, owners))) and _may_see(context, token):
                found.append(_row(token, secret))
            if pace.is_due(1 + len(owners or ())):
                yield
        return DescribeDelegationTokenResponse(tokens=found)


def _may_see(context: RequestContext, token: DelegationToken) -> bool:
    """Return whether a client may see a delegation token, because it owns the token or has the
    permission."""
    if token.concerns(context.peer.principal):
        return True
    return any(
        may(context.permissions, operation, kind, name, is_logged=False)
        for operation, kind, name in (
            (AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id),
            (AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner),
        )
    )


def _row(token: DelegationToken, secret: str) -> DescribedDelegationToken:
    owner_type, _, owner = token.owner.partition(":")
    requester_type, _, requester = token.requester.partition(":")
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=token_hmac(secret, token.id),
        renewers=list(_renewers(token)),
    )


def _renewers(token: DelegationToken) -> Iterator[DescribedDelegationTokenRenewer]:
    for one in token.renewers:
        type_, _, name = one.partition(":")
        yield DescribedDelegationTokenRenewer(principal_type=type_, principal_name=name)
