"""Delegation tokens as the controller decides about them, with Kafka's codes."""

from dataclasses import replace

import pytest

from ottla.controller.security.tokens import TOKENS_OF_OWNER_MAX, remove_expired
from ottla.jepsen.in_memory_controller import InMemoryController
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.security.delegation_tokens import DelegationToken, token_hmac
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.security.delegation_tokens import DelegationTokenConfig
from ottla.wire.codec_types import Message
from ottla.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from ottla.wire.messages.create_delegation_token_request import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from ottla.wire.messages.create_delegation_token_response import CreateDelegationTokenResponse
from ottla.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from ottla.wire.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
from ottla.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from ottla.wire.messages.renew_delegation_token_response import RenewDelegationTokenResponse

SECRET = "a secret of the cluster"
DAY_MS = 86_400_000
NOW_MS = 1_000_000_000_000


@pytest.fixture
def cluster() -> InMemoryController:
    found = InMemoryController(ControllerConfig(tokens=DelegationTokenConfig(secret=SECRET)))
    found.now_ms = NOW_MS
    found.start(1)
    found.now_ms = NOW_MS
    return found


def create(
    cluster: InMemoryController,
    user: str = "al",
    renewers: tuple[str, ...] = (),
    lifetime_ms: int = -1,
) -> CreateDelegationTokenResponse:
    rows = [CreatableRenewers(principal_type="User", principal_name=one) for one in renewers]
    request = CreateDelegationTokenRequest(renewers=rows, max_lifetime_ms=lifetime_ms)
    answer = cluster.forward(request, user=user)
    assert isinstance(answer, CreateDelegationTokenResponse)
    return answer


def renew(cluster: InMemoryController, hmac: bytes, user: str = "al", period_ms: int = -1) -> int:
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    answer = cluster.forward(request, user=user)
    assert isinstance(answer, RenewDelegationTokenResponse)
    return answer.expiry_timestamp_ms


def expire(cluster: InMemoryController, hmac: bytes, user: str = "al", period_ms: int = -1) -> int:
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    answer = cluster.forward(request, user=user)
    assert isinstance(answer, ExpireDelegationTokenResponse)
    return answer.expiry_timestamp_ms


def code_of(
    cluster: InMemoryController, request: Message, user: str = "al", *, is_token: bool = False
) -> ErrorCode:
    with pytest.raises(RefusedError) as caught:
        cluster.forward(request, user=user, is_token=is_token)
    return caught.value.code


def test_a_token_is_made_as_the_settings_say(cluster: InMemoryController) -> None:
    answer = create(cluster, renewers=("ben", "ben"))
    assert len(answer.token_id) == 22
    assert bytes(answer.hmac) == token_hmac(SECRET, answer.token_id)
    assert (answer.principal_name, answer.token_requester_principal_name) == ("al", "al")
    assert answer.issue_timestamp_ms == NOW_MS
    assert answer.expiry_timestamp_ms == NOW_MS + DAY_MS
    assert answer.max_timestamp_ms == NOW_MS + 7 * DAY_MS
    assert dict(cluster.image.delegation_tokens.items()) == {
        answer.token_id: DelegationToken(
            id=answer.token_id,
            owner="User:al",
            requester="User:al",
            renewers=("User:ben",),
            issued_ms=NOW_MS,
            max_ms=NOW_MS + 7 * DAY_MS,
            expires_ms=NOW_MS + DAY_MS,
        )
    }


def test_a_shorter_life_is_taken_and_a_longer_one_is_not(cluster: InMemoryController) -> None:
    short = create(cluster, lifetime_ms=1_000)
    assert short.max_timestamp_ms == short.expiry_timestamp_ms == NOW_MS + 1_000
    assert create(cluster, lifetime_ms=(1 << 63) - 1).max_timestamp_ms == NOW_MS + 7 * DAY_MS


def test_a_token_for_another_owner_names_both(cluster: InMemoryController) -> None:
    request = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="ben")
    answer = cluster.forward(request, user="al")
    assert isinstance(answer, CreateDelegationTokenResponse)
    assert (answer.principal_name, answer.token_requester_principal_name) == ("ben", "al")


def test_owner_and_renewers_renew_up_to_the_latest_end(cluster: InMemoryController) -> None:
    hmac = bytes(create(cluster, renewers=("ben",)).hmac)
    cluster.now_ms = NOW_MS + DAY_MS // 2
    assert renew(cluster, hmac, period_ms=1_000) == cluster.now_ms + 1_000
    assert renew(cluster, hmac, "ben") == cluster.now_ms + DAY_MS
    for day in range(1, 7):
        cluster.now_ms = NOW_MS + day * DAY_MS
        renew(cluster, hmac)
    assert renew(cluster, hmac) == NOW_MS + 7 * DAY_MS


def test_a_token_ends_at_once_or_in_a_while(cluster: InMemoryController) -> None:
    hmac = bytes(create(cluster).hmac)
    assert expire(cluster, hmac, period_ms=5_000) == NOW_MS + 5_000
    assert expire(cluster, hmac) == NOW_MS
    assert len(cluster.image.delegation_tokens) == 0


def test_refusals_have_kafkas_codes(cluster: InMemoryController) -> None:
    mine = RenewDelegationTokenRequest(hmac=bytes(create(cluster).hmac), renew_period_ms=-1)
    assert code_of(cluster, mine, "ben") is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    unknown = RenewDelegationTokenRequest(hmac=b"x")
    assert code_of(cluster, unknown) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    group = CreateDelegationTokenRequest(
        renewers=[CreatableRenewers(principal_type="Group", principal_name="g")]
    )
    assert code_of(cluster, group) is ErrorCode.INVALID_PRINCIPAL_TYPE
    not_allowed = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    for request in (CreateDelegationTokenRequest(), mine, ExpireDelegationTokenRequest(hmac=b"x")):
        assert code_of(cluster, request, is_token=True) is not_allowed
        assert code_of(cluster, request, "ANONYMOUS") is not_allowed
    cluster.now_ms += DAY_MS + 1
    assert code_of(cluster, mine) is ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_a_client_with_a_token_cannot_change_passwords(cluster: InMemoryController) -> None:
    deletion = ScramCredentialDeletion(name="al", mechanism=1)
    request = AlterUserScramCredentialsRequest(deletions=[deletion])
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert code_of(cluster, request, is_token=True) is refused
    cluster.forward(request, user="al")


def test_without_a_secret_there_are_no_tokens() -> None:
    cluster = InMemoryController()
    cluster.start(1)
    for request in (
        CreateDelegationTokenRequest(),
        RenewDelegationTokenRequest(hmac=b"x"),
        ExpireDelegationTokenRequest(hmac=b"x"),
    ):
        assert code_of(cluster, request) is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_an_owner_has_a_bound(cluster: InMemoryController) -> None:
    token = DelegationToken(
        id="", owner="User:al", requester="User:al", issued_ms=0, max_ms=0, expires_ms=0
    )
    many = {str(n): replace(token, id=str(n)) for n in range(TOKENS_OF_OWNER_MAX)}
    cluster.image = replace(
        cluster.image, delegation_tokens=cluster.image.delegation_tokens.update(many)
    )
    assert code_of(cluster, CreateDelegationTokenRequest()) is ErrorCode.POLICY_VIOLATION
    assert create(cluster, "ben").error_code == 0


def test_tokens_whose_time_is_over_are_removed(cluster: InMemoryController) -> None:
    create(cluster, lifetime_ms=1_000)
    kept = create(cluster).token_id
    assert remove_expired(cluster.image, NOW_MS + 1_000).records == ()
    decision = remove_expired(cluster.image, NOW_MS + 1_001)
    assert list(decision.image.delegation_tokens) == [kept]
    assert not decision.reply
