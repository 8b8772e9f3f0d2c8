"""Delegation tokens: passwords of a while, which a user's workers log in with."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.client.admin_parts.admin_calls import AdminCalls
from ottla.client.network.cluster import raise_for
from ottla.model.delegation_tokens import USER_TYPE
from ottla.wire.messages.create_delegation_token_request import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from ottla.wire.messages.create_delegation_token_response import CreateDelegationTokenResponse
from ottla.wire.messages.describe_delegation_token_request import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from ottla.wire.messages.describe_delegation_token_response import DescribeDelegationTokenResponse
from ottla.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from ottla.wire.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
from ottla.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from ottla.wire.messages.renew_delegation_token_response import RenewDelegationTokenResponse

AS_SET = -1
"""A period that the cluster's settings give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDescription:
    """A delegation token.  Times are milliseconds since the Unix epoch."""

    token_id: str
    """The user that a worker logs in as."""
    hmac: bytes = field(repr=False)
    """In Base64 the password that a worker logs in with: it makes anyone the owner."""
    owner: str
    """The user that a worker is for the cluster."""
    renewers: tuple[str, ...] = ()
    """Other users who may renew or end it."""
    issued_ms: int
    """When it was made."""
    expires_ms: int
    """Its end, unless it is renewed."""
    max_ms: int
    """The latest end that renewals may give it."""


class TokenCalls(AdminCalls):
    """Calls about delegation tokens."""

    async def create_token(
        self, *, renewers: Iterable[str] = (), lifetime_s: float | None = None
    ) -> TokenDescription:
        """Make a token for the user who asks.  Raises RefusedError if the cluster has none."""
        request = CreateDelegationTokenRequest(
            renewers=[
                CreatableRenewers(principal_type=USER_TYPE, principal_name=one) for one in renewers
            ],
            max_lifetime_ms=_period_ms(lifetime_s),
        )
        answer = await self._cluster.request(request, CreateDelegationTokenResponse)
        raise_for(answer.error_code)
        return TokenDescription(
            token_id=answer.token_id,
            hmac=bytes(answer.hmac),
            owner=answer.principal_name,
            renewers=tuple(renewers),
            issued_ms=answer.issue_timestamp_ms,
            expires_ms=answer.expiry_timestamp_ms,
            max_ms=answer.max_timestamp_ms,
        )

    async def describe_tokens(self, owners: Iterable[str] | None = None) -> list[TokenDescription]:
        """Return the tokens that the user who asks may see, of some owners or of all."""
        rows = None
        if owners is not None:
            rows = [
                DescribeDelegationTokenOwner(principal_type=USER_TYPE, principal_name=one)
                for one in owners
            ]
        answer = await self._sit_out(
            lambda: self._cluster.request(
                DescribeDelegationTokenRequest(owners=rows), DescribeDelegationTokenResponse
            )
        )
        raise_for(answer.error_code)
        return [
            TokenDescription(
                token_id=one.token_id,
                hmac=bytes(one.hmac),
                owner=one.principal_name,
                renewers=tuple(renewer.principal_name for renewer in one.renewers),
                issued_ms=one.issue_timestamp,
                expires_ms=one.expiry_timestamp,
                max_ms=one.max_timestamp,
            )
            for one in answer.tokens
        ]

    async def renew_token(self, hmac: bytes, *, period_s: float | None = None) -> int:
        """Let a token hold for longer; return its new end (ms)."""
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=_period_ms(period_s))
        answer = await self._sit_out(
            lambda: self._cluster.request(request, RenewDelegationTokenResponse)
        )
        raise_for(answer.error_code)
        return answer.expiry_timestamp_ms

    async def end_token(self, hmac: bytes) -> None:
        """End a token at once, and the sessions of those who logged in by it."""
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
        answer = await self._cluster.request(request, ExpireDelegationTokenResponse)
        raise_for(answer.error_code)


def _period_ms(period_s: float | None) -> int:
    return AS_SET if period_s is None else max(1, round(period_s * 1_000))
