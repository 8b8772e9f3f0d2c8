"""A broker's checks of a token's claims."""

from typing import Any

import pytest

from ottla.model.security.jwt_claims import ClaimRules, TokenFault, TokenFaultError, check_claims

NOW_MS = 1_000_000_000_000
NOW_S = NOW_MS // 1_000
RULES = ClaimRules(audiences=("a", "b"), issuer="i")
GOOD: dict[str, Any] = {
    "sub": "al",
    "iss": "i",
    "aud": ["x", "b"],
    "iat": NOW_S,
    "exp": NOW_S + 60,
    "scope": "read",
}


def test_a_good_token_names_its_user_and_its_end() -> None:
    assert check_claims(GOOD, RULES, NOW_MS) == ("al", NOW_MS + 60_000)
    assert check_claims({**GOOD, "aud": "a", "scope": ["r", "w"]}, RULES, NOW_MS).user == "al"
    without = {key: value for key, value in GOOD.items() if key not in ("iss", "aud", "scope")}
    assert check_claims(without, ClaimRules(), NOW_MS).user == "al"


def test_the_subject_may_be_in_another_claim() -> None:
    rules = ClaimRules(subject_claim="client_id")
    assert check_claims({**GOOD, "client_id": " svc "}, rules, NOW_MS).user == "svc"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"exp": NOW_S - 31}, TokenFault.EXPIRED),
        ({"exp": None}, TokenFault.CLAIMS),
        ({"exp": "soon"}, TokenFault.CLAIMS),
        ({"exp": True}, TokenFault.CLAIMS),
        ({"exp": float("inf")}, TokenFault.CLAIMS),
        ({"exp": float("nan")}, TokenFault.CLAIMS),
        ({"exp": 10**400}, TokenFault.CLAIMS),
        ({"iat": None}, TokenFault.CLAIMS),
        ({"nbf": NOW_S + 31}, TokenFault.NOT_YET_VALID),
        ({"nbf": "x"}, TokenFault.CLAIMS),
        ({"iss": "I"}, TokenFault.ISSUER),
        ({"iss": ["i"]}, TokenFault.ISSUER),
        ({"aud": "x"}, TokenFault.AUDIENCE),
        ({"aud": [["a"]]}, TokenFault.AUDIENCE),
        ({"aud": None}, TokenFault.AUDIENCE),
        ({"sub": None}, TokenFault.CLAIMS),
        ({"sub": " "}, TokenFault.CLAIMS),
        ({"sub": 7}, TokenFault.CLAIMS),
        ({"sub": "a" * 1_025}, TokenFault.CLAIMS),
        ({"scope": " "}, TokenFault.CLAIMS),
    ],
)
def test_a_claim_that_is_not_as_demanded_is_a_fault(
    change: dict[str, Any], fault: TokenFault
) -> None:
    with pytest.raises(TokenFaultError) as caught:
        check_claims({**GOOD, **change}, RULES, NOW_MS)
    assert caught.value.fault is fault


def test_clocks_may_be_apart_by_the_skew() -> None:
    late = {**GOOD, "exp": NOW_S - 29, "nbf": NOW_S + 29}
    assert check_claims(late, RULES, NOW_MS).ends_ms < NOW_MS
