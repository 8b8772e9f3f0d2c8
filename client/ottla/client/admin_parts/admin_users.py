"""Admin calls for users with SCRAM credentials."""

import secrets
from collections.abc import Mapping
from typing import NamedTuple

import trio

from ottla.client.admin_parts.admin_calls import AdminCalls, refusal_of
from ottla.client.network.cluster import raise_for
from ottla.model.security.scram import SCRAM_BY_NAME, SCRAM_BY_NUMBER
from ottla.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
)
from ottla.wire.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
)
from ottla.wire.messages.describe_user_scram_credentials_response import (
    DescribeUserScramCredentialsResponse,
)

ITERATIONS_DEFAULT = 8_192

SALT_BYTES = 13
"""Number of random bytes in a salt. The salt is sent as hexadecimal digits."""


class UserCredential(NamedTuple):
    """One SCRAM credential of a user: its mechanism and its iteration count."""

    mechanism: str
    iterations: int


class UserCalls(AdminCalls):
    """Methods of the admin client for users with SCRAM credentials."""

    async def describe_users(self) -> Mapping[str, list[UserCredential]]:
        """Return the SCRAM credentials of every user, without passwords."""
        answer = await self._cluster.request(
            DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse
        )
        raise_for(answer.error_code, answer.error_message)
        return {
            one.user: [
                UserCredential(_name_of(info.mechanism), info.iterations)
                for info in one.credential_infos
            ]
            for one in answer.results
        }

    async def set_password(
        self, user: str, mechanism: str, password: str, *, iterations: int = ITERATIONS_DEFAULT
    ) -> None:
        """Set the password with which a user logs in by SCRAM. The client sends only a salted hash
        of the password to the cluster.

        Raises RefusedError if the cluster refuses the request.
        """
        hashing = SCRAM_BY_NAME[mechanism]
        salt = secrets.token_hex(SALT_BYTES).encode()
        salted = await trio.to_thread.run_sync(
            hashing.salted_password, password, salt, max(iterations, 1)
        )
        await self._alter(
            AlterUserScramCredentialsRequest(
                upsertions=[
                    ScramCredentialUpsertion(
                        name=user,
                        mechanism=hashing.number,
                        iterations=iterations,
                        salt=salt,
                        salted_password=salted,
                    )
                ]
            )
        )

    async def delete_password(self, user: str, mechanism: str) -> None:
        """Delete the SCRAM credential of a user for one mechanism.

        Raises RefusedError if the user has no credential for the mechanism.
        """
        number = SCRAM_BY_NAME[mechanism].number
        await self._alter(
            AlterUserScramCredentialsRequest(
                deletions=[ScramCredentialDeletion(name=user, mechanism=number)]
            )
        )

    async def _alter(self, request: AlterUserScramCredentialsRequest) -> None:
        answer = await self._retry_until_timeout(
            lambda: self._cluster.request(request, AlterUserScramCredentialsResponse)
        )
        for result in answer.results:
            refusal = refusal_of(result.error_code, result.error_message)
            if refusal is not None:
                raise refusal


def _name_of(number: int) -> str:
    hashing = SCRAM_BY_NUMBER.get(number)
    return f"mechanism {number}" if hashing is None else hashing.name
