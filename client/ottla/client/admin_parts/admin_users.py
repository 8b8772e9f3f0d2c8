"""Users that log in by SCRAM, and their credentials."""

import secrets
from collections.abc import Mapping
from typing import NamedTuple

import trio

from ottla.client.admin_parts.admin_calls import AdminCalls, refusal_of
from ottla.client.network.cluster import raise_for
from ottla.model.scram import SCRAM_BY_NAME, SCRAM_BY_NUMBER
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
"""Random bytes of a salt, which is sent as their hexadecimal digits."""


class UserCredential(NamedTuple):
    """That a user has a credential."""

    mechanism: str
    iterations: int


class UserCalls(AdminCalls):
    """Calls about users."""

    async def describe_users(self) -> Mapping[str, list[UserCredential]]:
        """Return the credentials of every user."""
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
        """Give a user a password, which does not leave this process; RefusedError if refused."""
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
        """Take a user's credential of a mechanism away; RefusedError if there is none."""
        number = SCRAM_BY_NAME[mechanism].number
        await self._alter(
            AlterUserScramCredentialsRequest(
                deletions=[ScramCredentialDeletion(name=user, mechanism=number)]
            )
        )

    async def _alter(self, request: AlterUserScramCredentialsRequest) -> None:
        answer = await self._sit_out(
            lambda: self._cluster.request(request, AlterUserScramCredentialsResponse)
        )
        for result in answer.results:
            refusal = refusal_of(result.error_code, result.error_message)
            if refusal is not None:
                raise refusal


def _name_of(number: int) -> str:
    hashing = SCRAM_BY_NUMBER.get(number)
    return f"mechanism {number}" if hashing is None else hashing.name
