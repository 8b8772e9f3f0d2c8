"""Registrations of controllers, and UnregisterController."""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest

from ottla.controller.decision import decided
from ottla.controller.membership.controllers import (
    register_controller,
    registered_controllers,
)
from ottla.controller.registration_driver import registration_of, registration_request
from ottla.jepsen.in_memory_controller import IDENTITY, InMemoryController
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import METADATA_VERSION, OTTLA_VERSION
from ottla.metadata.image import EMPTY, ControllerRegistration
from ottla.metadata.records import feature_level_record
from ottla.metadata.snapshot import records_of
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.endpoints import ListenAddress
from ottla.model.version import VERSION
from ottla.proto import controller_pb2 as pb
from ottla.wire.messages.unregister_controller_request import UnregisterControllerRequest

ACTIVE, OTHER = NodeId(101), NodeId(102)
CONFIG = ControllerConfig(
    node_id=ACTIVE,
    listeners=(
        ListenAddress("CONTROLLER", "c1.example", 9093),
        ListenAddress("SECURE", "", 9094, "SSL"),
    ),
    advertised_listeners=(ListenAddress("SECURE", "outside.example", 9095),),
)


def wanted(node_id: NodeId = OTHER, *, incarnation: int = 1) -> ControllerRegistration:
    return registration_of(replace(CONFIG, node_id=node_id), UUID(int=incarnation))


def request_of(registration: ControllerRegistration) -> pb.RegisterControllerRequest:
    return registration_request(registration, IDENTITY.cluster_id)


def register(cluster: InMemoryController, request: pb.RegisterControllerRequest) -> int:
    """Register a controller, and return the number of records written."""
    decision = register_controller(cluster.image, IDENTITY, request)
    cluster.take(decision)
    return len(decision.records)


def unregister(cluster: InMemoryController, node_id: NodeId) -> None:
    cluster.forward(UnregisterControllerRequest(controller_id=node_id))


def code_of(action: Callable[[], object]) -> ErrorCode:
    with pytest.raises(RefusedError) as caught:
        action()
    return caught.value.code


def test_a_controller_registers_with_all_its_listeners_and_levels() -> None:
    cluster = InMemoryController(CONFIG)

    assert register(cluster, request_of(wanted())) == 1

    known = cluster.image.controllers[OTHER]
    assert known == wanted()
    assert [(one.name, one.host, one.port, one.security_protocol) for one in known.endpoints] == [
        ("CONTROLLER", "c1.example", 9093, 0),
        ("SECURE", "outside.example", 9095, 1),
    ]
    assert METADATA_VERSION in {one.name for one in known.features}
    assert known.software_version == VERSION


def test_only_a_changed_registration_is_written() -> None:
    cluster = InMemoryController(CONFIG)
    register(cluster, request_of(wanted()))

    assert register(cluster, request_of(wanted())) == 0
    assert register(cluster, request_of(wanted(incarnation=2))) == 1


def test_a_registered_controller_is_unregistered_and_may_come_back() -> None:
    cluster = InMemoryController(CONFIG)
    register(cluster, request_of(wanted()))

    unregister(cluster, OTHER)

    assert OTHER not in cluster.image.controllers
    assert register(cluster, request_of(wanted())) == 1


def test_the_checks_of_an_unregistration_are_in_kafka_s_order() -> None:
    """The active controller, then the level, then the registration (QuorumController)."""
    cluster = InMemoryController(CONFIG)

    assert code_of(lambda: unregister(cluster, ACTIVE)) is ErrorCode.INVALID_REQUEST
    assert code_of(lambda: unregister(cluster, OTHER)) is ErrorCode.CONTROLLER_ID_NOT_REGISTERED
    level_32 = feature_level_record(METADATA_VERSION, 32)
    cluster.take(decided(cluster.image, [level_32], None))
    assert code_of(lambda: unregister(cluster, OTHER)) is ErrorCode.UNSUPPORTED_VERSION
    assert code_of(lambda: unregister(cluster, ACTIVE)) is ErrorCode.INVALID_REQUEST


def test_a_registration_is_only_remembered_while_the_previous_release_may_come_back() -> None:
    cluster = InMemoryController(CONFIG)
    cluster.take(decided(cluster.image, [feature_level_record(OTTLA_VERSION, 0)], None))

    assert register(cluster, request_of(wanted())) == 0

    assert OTHER not in cluster.image.controllers
    assert registered_controllers(cluster.image, {OTHER: wanted()}) == (wanted(),)


def test_remembered_registrations_do_not_count_once_registrations_are_records() -> None:
    cluster = InMemoryController(CONFIG)
    register(cluster, request_of(wanted()))
    unregister(cluster, OTHER)

    assert registered_controllers(cluster.image, {OTHER: wanted()}) == ()


def spoilt(**fields: object) -> pb.RegisterControllerRequest:
    request = request_of(wanted())
    for name, value in fields.items():
        if isinstance(value, list):
            del getattr(request, name)[:]
            getattr(request, name).extend(value)
        else:
            setattr(request, name, value)
    return request


LISTENER = request_of(wanted()).listeners[0]
FEATURE = request_of(wanted()).features[0]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (spoilt(cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (spoilt(controller_id=-1), ErrorCode.INVALID_REGISTRATION),
        (spoilt(incarnation_id=b"short"), ErrorCode.INVALID_REQUEST),
        (spoilt(listeners=[LISTENER, LISTENER]), ErrorCode.INVALID_REGISTRATION),
        (spoilt(features=[FEATURE, FEATURE]), ErrorCode.INVALID_REGISTRATION),
        (spoilt(features=[]), ErrorCode.UNSUPPORTED_VERSION),
        (spoilt(software_version="9" * 101), ErrorCode.INVALID_REGISTRATION),
    ],
    ids=["cluster", "id", "incarnation", "listener twice", "feature twice", "levels", "version"],
)
def test_an_invalid_registration_is_refused(
    request_: pb.RegisterControllerRequest, code: ErrorCode
) -> None:
    cluster = InMemoryController(CONFIG)
    assert code_of(lambda: register(cluster, request_)) is code


@pytest.mark.parametrize(("host", "port"), [("", 1), ("a b", 1), ("host", 0), ("host", 65_536)])
def test_a_listener_without_a_valid_address_is_refused(host: str, port: int) -> None:
    cluster = InMemoryController(CONFIG)
    request = request_of(wanted())
    request.listeners[0].host, request.listeners[0].port = host, port
    assert code_of(lambda: register(cluster, request)) is ErrorCode.INVALID_REGISTRATION


def test_registrations_are_in_snapshots_and_deltas() -> None:
    cluster = InMemoryController(CONFIG)
    before = cluster.image
    register(cluster, request_of(wanted()))

    delta = MetadataDelta(EMPTY)
    delta.replay_all(records_of(cluster.image))

    assert delta.image.controllers == cluster.image.controllers
    assert delta.changed_controllers == (OTHER,)
    between = MetadataDelta.between(before, cluster.image)
    assert between.changed_controllers == (OTHER,)
    assert not between.is_empty
