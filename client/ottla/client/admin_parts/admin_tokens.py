"""Admin calls for delegation tokens: temporary passwords with which the worker processes of a user
log in."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.client.admin_parts.admin_calls import AdminCalls
from ottla.client.network.cluster import raise_for
from ottla.model.security.delegation_tokens import USER_TYPE
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
"""Period in a request for a delegation token that selects the default in the cluster's settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDescription:
    """A delegation token.  Times are in ms since 1970."""

    token_id: str
    """Id of the token. A worker process uses it as the user name of its login."""
    hmac: bytes = field(repr=False)
    """HMAC of the token. Encoded in Base64, it is the password of a worker's login. Any process
    that knows it has the rights of the owner."""
    owner: str
    """User whose rights the token grants."""
    renewers: tuple[str, ...] = ()
    """Other users who may renew the token or make it expire."""
    issued_ms: int
    """Time when the token was created, in ms since 1970."""
    expires_ms: int
    """Time, in ms since 1970, at which the token expires if it is not renewed."""
    max_ms: int
    """Latest expiry time that renewals of the token can reach, in ms since 1970."""


class TokenCalls(AdminCalls):
    """Methods of the admin client for delegation tokens."""

    async def create_token(
        self, *, renewers: Iterable[str] = (), lifetime_s: float | None = None
    ) -> TokenDescription:
        """Create and return a delegation token for the calling user. `lifetime_s` is the token's
        maximum lifetime in seconds, or None for the lifetime in the cluster's settings.

        Raises RefusedError if delegation tokens are not enabled in the cluster.
        """
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
        """Return the delegation tokens of `owners` that the calling user may see. None for `owners`
        means all owners."""
        rows = None
        if owners is not None:
            rows = [
                DescribeDelegationTokenOwner(principal_type=USER_TYPE, principal_name=one)
                for one in owners
            ]
        answer = await self._retry_until_timeout(
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
        """Renew a delegation token for `period_s` seconds, or for the period in the cluster's
        settings if `period_s` is None.

        Returns the new expiry time, in ms since 1970.
        """
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=_period_ms(period_s))
        answer = await self._retry_until_timeout(
            lambda: self._cluster.request(request, RenewDelegationTokenResponse)
        )
        raise_for(answer.error_code)
        return answer.expiry_timestamp_ms

    async def end_token(self, hmac: bytes) -> None:
        """Expire a delegation token immediately. The brokers also end the sessions that were
        authenticated with it."""
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
        answer = await self._cluster.request(request, ExpireDelegationTokenResponse)
        raise_for(answer.error_code)


def _period_ms(period_s: float | None) -> int:
    return AS_SET if period_s is None else max(1, round(period_s * 1_000))
