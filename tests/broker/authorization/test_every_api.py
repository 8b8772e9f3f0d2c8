"""Each API asked by users with and without the operations that it needs, over real sockets."""

from collections.abc import Callable
from typing import Any

import pytest
import trio

from ottla.wire.api import AnyOf, Decider, Need, Scope, When
from ottla.wire.apis import API
from tests.jepsen.oracles.acl_cases import (
    ACL_CASES,
    BROKER_CASES,
    CONTROLLER_CASES,
    OWN_CASES,
    asks,
    refusal_in,
    request_of,
)

OpenSecured = Callable[..., Any]  # the `open_secured` fixture, in conftest.py

NOT_SERVED = frozenset((When.TWO_PHASE, When.ON_CONTROLLERS, When.IN_SHARE_SESSION))
"""Needs of versions and nodes that are not served here, and of more than one request
(`tests/broker/shares`)."""

TIMEOUT_S = 120

pytestmark = pytest.mark.timeout(240)


async def test_every_api_is_refused_without_what_its_row_says_and_served_with_it(
    open_secured: OpenSecured,
) -> None:
    asked = list(asks((*BROKER_CASES, *CONTROLLER_CASES, *ACL_CASES, *OWN_CASES)))
    supers = [one.user for one in asked if one.is_super]
    found = {}
    with trio.fail_after(TIMEOUT_S):
        async with open_secured([one.user for one in asked], supers) as secured:
            await secured.use(dict.fromkeys(entry for one in asked for entry in one.entries))
            for one in asked:
                request = request_of(one.case, topic_id=secured.topic_id, node_id=1)
                answer = await secured.ask(one.user, request, one.case.version)
                found[one.title] = refusal_in(answer)
    expected = {one.title: {int(one.expected)} - {0} for one in asked}
    wrong = {
        title: (found[title], codes) for title, codes in expected.items() if found[title] != codes
    }
    assert wrong == {}


async def test_a_broker_serves_every_row_that_says_so(open_secured: OpenSecured) -> None:
    served = {key for key, row in API.items() if row.is_served and row.on_broker}
    with trio.fail_after(TIMEOUT_S):
        async with open_secured(["al"]) as secured:
            assert secured.broker.dispatcher.api_keys == served


def test_every_row_that_a_broker_decides_has_a_case() -> None:
    """So that no API is gated without being asked here; answers that hide are tested apart."""
    asked = {
        (case.key, operation, resource)
        for case in (*BROKER_CASES, *CONTROLLER_CASES, *ACL_CASES, *OWN_CASES)
        for group in case.needs
        for operation, resource in group
    }
    for key, row in API.items():
        if row.decider is not Decider.CONTROLLER and row.is_served:
            for one in row.needs:
                needs = one.needs if isinstance(one, AnyOf) else (one,)
                is_of_answer = not all(map(is_refused_with_a_code, needs))
                for need in () if is_of_answer else needs:
                    if need.when not in NOT_SERVED:
                        assert (key, need.operation, need.resource) in asked, (key, need)


def is_refused_with_a_code(need: Need) -> bool:
    """Return whether a request without it has a code in its answer, whatever the answer shows."""
    return need.scope is Scope.REQUEST or (need.scope is Scope.EACH and bool(need.named_by))
