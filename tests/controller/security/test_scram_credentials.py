"""AlterUserScramCredentials: which credentials are stored, and that refusals store nothing."""

import pytest

from ottla.jepsen.in_memory_controller import InMemoryController
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY
from ottla.metadata.snapshot import records_of
from ottla.model.errors import ErrorCode
from ottla.model.security.scram import SCRAM_BY_NUMBER, SCRAM_SHA_256, ScramCredential
from ottla.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.wire.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
)

SALT = b"salt"
Asked = ScramCredentialDeletion | ScramCredentialUpsertion


@pytest.fixture
def cluster() -> InMemoryController:
    cluster = InMemoryController()
    cluster.start(1)
    return cluster


def put(
    name: str,
    mechanism: int = 1,
    iterations: int = 4_096,
    salt: bytes = SALT,
    salted: bytes | None = None,
) -> ScramCredentialUpsertion:
    size = SCRAM_BY_NUMBER.get(mechanism, SCRAM_SHA_256).size
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=b"p" * size if salted is None else salted,
    )


def drop(name: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(cluster: InMemoryController, *asked: Asked) -> dict[str, tuple[int, str | None]]:
    response = cluster.forward(
        AlterUserScramCredentialsRequest(
            deletions=[one for one in asked if isinstance(one, ScramCredentialDeletion)],
            upsertions=[one for one in asked if isinstance(one, ScramCredentialUpsertion)],
        )
    )
    assert isinstance(response, AlterUserScramCredentialsResponse)
    found = {one.user: (one.error_code, one.error_message) for one in response.results}
    assert len(found) == len(response.results)
    return found


def users(cluster: InMemoryController) -> dict[int, list[str]]:
    return {number: sorted(found) for number, found in cluster.image.scram_credentials.items()}


def test_a_credential_is_stored_without_the_password(cluster: InMemoryController) -> None:
    salted = SCRAM_SHA_256.salted_password("pw", SALT, 8_192)
    assert alter(cluster, put("al", 1, 8_192, SALT, salted)) == {"al": (0, None)}
    expected = ScramCredential.of_password(SCRAM_SHA_256, "pw", SALT, 8_192)
    assert cluster.image.scram_credentials[1]["al"] == expected
    assert all(salted not in one.SerializeToString() for one in records_of(cluster.image))


def test_each_mechanism_has_a_credential_of_its_own(cluster: InMemoryController) -> None:
    alter(cluster, put("al", 1), put("ben", 2))
    alter(cluster, put("al", 2, 16_384))
    assert users(cluster) == {1: ["al"], 2: ["al", "ben"]}
    assert alter(cluster, drop("al", 1)) == {"al": (0, None)}
    assert users(cluster) == {2: ["al", "ben"]}


def test_a_credential_replaces_the_one_before(cluster: InMemoryController) -> None:
    alter(cluster, put("al", iterations=4_096))
    alter(cluster, put("al", iterations=8_192))
    assert cluster.image.scram_credentials[1]["al"].iterations == 8_192


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (put(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (drop(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (put("x" * 1_025), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be longer"),
        (put("al", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (drop("al", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (put("al", iterations=4_095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (put("al", iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (put("al", salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salt must have 1 to 1024"),
        (put("al", salt=b"x" * 1_025), ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salt must have"),
        (
            put("al", salted=b"x" * 31),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "The salted password must have 32 bytes",
        ),
        (
            drop("al"),
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
    ],
)
def test_what_cannot_be_is_refused_and_the_others_are_stored(
    cluster: InMemoryController, asked: Asked, code: ErrorCode, message: str
) -> None:
    found = alter(cluster, asked, put("ben"))
    assert found.pop("ben") == (0, None)
    ((_, (found_code, found_message)),) = found.items()
    assert found_code == code
    assert found_message is not None
    assert found_message.startswith(message)
    assert users(cluster) == {1: ["ben"]}


@pytest.mark.parametrize(
    "asked",
    [
        (put("al"), put("al")),
        (put("al", 1), put("al", 2)),
        (drop("al"), put("al")),
        (drop("al"), drop("al")),
        (drop("al"), drop("al"), put("al")),
        (put("al", 9), put("al")),
    ],
)
def test_a_user_who_is_named_twice_keeps_what_was(
    cluster: InMemoryController, asked: tuple[Asked, ...]
) -> None:
    alter(cluster, put("al", iterations=5_000))
    ((code, _),) = alter(cluster, *asked).values()
    expected = ErrorCode.DUPLICATE_RESOURCE
    if any(one.mechanism == 9 for one in asked):
        expected = ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert code == expected
    assert cluster.image.scram_credentials[1]["al"].iterations == 5_000
    assert users(cluster) == {1: ["al"]}


def test_a_change_is_named_by_the_delta(cluster: InMemoryController) -> None:
    alter(cluster, put("al"), put("ben", 2))
    before = cluster.image
    alter(cluster, drop("al"), put("cy"))
    delta = MetadataDelta.between(before, cluster.image)
    assert delta.changed_scram_users == ((1, "al"), (1, "cy"))
    assert not delta.is_empty
    restored = MetadataDelta(EMPTY)
    restored.replay_all(records_of(before))
    assert (1, "al") in restored.changed_scram_users
