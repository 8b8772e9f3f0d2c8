"""DescribeUserScramCredentials: users and their mechanisms, never the credentials."""

from typing import Any

from ottla.broker.cluster.describe_scram_credentials import DescribeScramCredentialsApi
from ottla.metadata import fold
from ottla.metadata.image import EMPTY
from ottla.metadata.records import scram_credential_record
from ottla.model.errors import ErrorCode
from ottla.model.security.scram import ScramCredential
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.network.steps import run_through
from ottla.wire.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from ottla.wire.messages.describe_user_scram_credentials_response import (
    DescribeUserScramCredentialsResponse,
)

KNOWN = [("al", 1, 4_096), ("al", 2, 8_192), ("ben", 2, 4_096)]
NOT_FOUND: Any = (ErrorCode.RESOURCE_NOT_FOUND, [])


def described(*users: str, of_all: bool = False) -> dict[str, Any]:
    metadata = MetadataCache(lambda topic: False)
    metadata.image = fold.apply_all(
        EMPTY,
        [
            scram_credential_record(user, number, ScramCredential(b"s", b"k", b"v", iterations))
            for user, number, iterations in KNOWN
        ],
    )
    names = None if of_all else [UserName(name=user) for user in users]
    context: Any = None
    response = run_through(
        DescribeScramCredentialsApi(metadata).handle(
            context, DescribeUserScramCredentialsRequest(users=names)
        )
    )
    assert isinstance(response, DescribeUserScramCredentialsResponse)
    assert response.error_code == ErrorCode.NONE
    return {
        one.user: (
            one.error_code,
            [(info.mechanism, info.iterations) for info in one.credential_infos],
        )
        for one in response.results
    }


def test_all_users_are_described_when_the_request_names_none() -> None:
    expected = {"al": (0, [(1, 4_096), (2, 8_192)]), "ben": (0, [(2, 4_096)])}
    assert described(of_all=True) == expected
    assert described() == expected


def test_only_the_requested_users_are_described() -> None:
    assert described("ben", "nosuch") == {"ben": (0, [(2, 4_096)]), "nosuch": NOT_FOUND}


def test_a_user_requested_twice_is_refused_once() -> None:
    assert described("al", "ben", "al") == {
        "al": (ErrorCode.DUPLICATE_RESOURCE, []),
        "ben": (0, [(2, 4_096)]),
    }
