"""Ottla's own requests: those that change state are accepted only from configured addresses."""

from dataclasses import replace

import pytest

from ottla.broker.cluster.own_requests import (
    OwnRequests,
    changes_state,
    is_this_machine,
)
from ottla.model.errors import ErrorCode
from ottla.model.settings.broker import BrokerConfig, load_broker_config
from ottla.node.network.dispatch import Peer, RequestContext
from ottla.node.network.steps import finished
from ottla.wire.apis import API, CLEAN_LOGS, DRAIN_BROKER, OFFLOAD_LOGS, WRITE_SNAPSHOT
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.drain_broker_request import DrainBrokerRequest
from ottla.wire.messages.drain_broker_response import DrainBrokerResponse

LOCAL, REMOTE = "127.0.0.1", "10.0.0.9"


def config_with(**texts: str) -> BrokerConfig:
    minimal = {"node.id": "1", "controller.quorum.voters": "101@h:1"}
    return load_broker_config(
        {**minimal, **{key.replace("_", "."): text for key, text in texts.items()}}
    )[0]


def peer(host: str, local_host: str = "10.0.0.1") -> Peer:
    return Peer(
        connection_id=1,
        listener_name="PLAINTEXT",
        peer_host=host,
        peer_port=40_000,
        local_host=local_host,
        local_port=9092,
    )


def test_own_requests_that_change_state_are_those_that_need_alter() -> None:
    own = [row for row in API.values() if row.is_own]
    changing = {row.key for row in own if changes_state(row)}
    assert changing == {DRAIN_BROKER, CLEAN_LOGS, OFFLOAD_LOGS, WRITE_SNAPSHOT}


@pytest.mark.parametrize(
    ("host", "local_host", "is_here"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.8.9.1", "127.0.0.1", True),
        ("::1", "::1", True),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", True),
        ("10.0.0.1", "10.0.0.1", True),
        ("fe80::1%eth0", "fe80::1%eth0", True),
        ("10.0.0.9", "10.0.0.1", False),
        ("::ffff:10.0.0.9", "::ffff:10.0.0.1", False),
        ("128.0.0.1", "10.0.0.1", False),
        ("127.0.0.1.example", "10.0.0.1", False),
        ("", "", False),
    ],
)
def test_a_client_on_this_machine_is_known_by_its_address(
    host: str, local_host: str, is_here: bool
) -> None:
    assert is_this_machine(peer(host, local_host)) is is_here


@pytest.mark.parametrize(
    ("allowed", "host", "remedy"),
    [
        ("loopback", LOCAL, None),
        ("loopback", REMOTE, "ask from the broker's own machine, or set ottla.admin.requests=any"),
        ("any", LOCAL, None),
        ("any", REMOTE, None),
        ("none", LOCAL, "set ottla.admin.requests=loopback or any in its file"),
        ("none", REMOTE, "set ottla.admin.requests=loopback or any in its file"),
    ],
)
async def test_a_change_of_state_is_taken_from_where_the_setting_says(
    allowed: str, host: str, remedy: str | None
) -> None:
    done = []

    async def drain(context: RequestContext, request: DrainBrokerRequest) -> DrainBrokerResponse:
        done.append(request)
        return DrainBrokerResponse()

    own = OwnRequests(replace(config_with(), admin_requests=allowed))
    header = RequestHeader(DRAIN_BROKER, 0, "test", 0)
    context = RequestContext(None, header, 7, 0, peer(host), 0)  # type: ignore[arg-type]
    answer = await finished(own.guarded(drain)(context, DrainBrokerRequest()))
    if remedy is None:
        assert (answer, len(done)) == (DrainBrokerResponse(), 1)
    else:
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert answer.error_message is not None
        assert remedy in answer.error_message
        assert not done


def test_the_rule_is_loopback_where_the_file_says_nothing() -> None:
    assert config_with().admin_requests == "loopback"


def test_open_access_is_logged_at_start() -> None:
    assert OwnRequests(config_with(listeners="PLAINTEXT://127.0.0.1:0")).warning() is None
    assert OwnRequests(config_with(listeners="A://[::1]:0,B://localhost:0")).warning() is None
    for allowed, said in (
        ("loopback", "taken from this machine alone (ottla.admin.requests=loopback)"),
        ("any", "every client may also send those that change state"),
        ("none", "taken from no client"),
    ):
        own = OwnRequests(
            config_with(listeners="A://127.0.0.1:0,B://:0", ottla_admin_requests=allowed)
        )
        warning = own.warning()
        assert warning is not None
        assert said in warning
        assert "\n" not in warning
