"""Registrations of controllers, and their removal (KIP-919, UnregisterController).

Pure. A registration names the endpoints of a controller and the feature levels that it supports. It
remains when the controller stops, or is removed from the voters. Only an operator can remove it. A
controller that still runs then registers again, as in Kafka.

From ottla.version 1 on, registrations are stored as records, which earlier releases cannot read.
Below that level, the active controller stores them only in memory, and controllers register
repeatedly. The features that all controllers support are therefore known before the level is
raised.
"""

from collections.abc import Mapping

from ottla.controller.decision import Context, Decision, decided, request_uuid
from ottla.controller.membership.brokers import REGISTRATION_LIST_MAX, SECURITY_PROTOCOL_MAX
from ottla.metadata.features import (
    METADATA_VERSION,
    METADATA_VERSION_OF_UNREGISTERED_CONTROLLERS,
    OTTLA_VERSION,
    OTTLA_VERSION_OF_CONTROLLERS,
    LevelRange,
    uncovered,
)
from ottla.metadata.image import ControllerRegistration, Endpoint, FeatureRange, MetadataImage
from ottla.metadata.records import register_controller_record, unregister_controller_record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.limits import INT16_MAX
from ottla.model.settings.endpoints import PORT_MAX, is_host
from ottla.proto import controller_pb2 as pb
from ottla.raft.voters import QuorumIdentity
from ottla.wire.messages.unregister_controller_request import UnregisterControllerRequest
from ottla.wire.messages.unregister_controller_response import UnregisterControllerResponse

CONTROLLERS_MAX = 1_000
"""Maximum number of registered controllers. With a larger number, a faulty node could fill the
metadata. With a smaller number, a controller could be refused in a quorum that has replaced many
controllers."""

VERSION_LENGTH_MAX = 100
"""Maximum number of characters of a controller's software version. Every broker stores the version
in memory."""


def are_controllers_registered(image: MetadataImage) -> bool:
    """Return whether registrations of controllers are stored as records at the finalized
    ottla.version."""
    return image.features.get(OTTLA_VERSION, 0) >= OTTLA_VERSION_OF_CONTROLLERS


def registered_controllers(
    image: MetadataImage, remembered: Mapping[NodeId, ControllerRegistration]
) -> tuple[ControllerRegistration, ...]:
    """Return the registered controllers. `remembered` has the registrations in memory, which are
    used while the finalized ottla.version does not store registrations as records."""
    found = image.controllers if are_controllers_registered(image) else remembered
    return tuple(found.values())


def register_controller(
    image: MetadataImage, identity: QuorumIdentity, request: pb.RegisterControllerRequest
) -> Decision[ControllerRegistration]:
    """Decide the registration of a controller, which replaces the controller's previous one. The
    reply is the registration.

    Writes no record if the controller is already registered with the same content, or if the
    finalized ottla.version does not store registrations. Raises RefusedError if the request is
    invalid.
    """
    if request.cluster_id != identity.cluster_id:
        raise RefusedError(
            ErrorCode.INCONSISTENT_CLUSTER_ID, f"The cluster id is {identity.cluster_id}."
        )
    wanted = _read(request)
    _check(image, wanted)
    if not are_controllers_registered(image) or image.controllers.get(wanted.id) == wanted:
        return decided(image, (), wanted)
    return decided(image, (register_controller_record(wanted),), wanted)


def unregister_controller(
    image: MetadataImage, context: Context, request: UnregisterControllerRequest
) -> Decision[UnregisterControllerResponse]:
    """Decide a client's UnregisterController request, which deletes a controller's registration.

    The checks and their order are the same as in Kafka 4.4. A voter or a running controller may be
    unregistered, but not the active controller. Raises RefusedError if a check fails.
    """
    node_id = NodeId(request.controller_id)
    if node_id == context.config.node_id:  # only the active controller decides
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active."
        )
    level = image.features.get(METADATA_VERSION, 0)
    if level < METADATA_VERSION_OF_UNREGISTERED_CONTROLLERS:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller unregistration.",
        )
    if node_id not in image.controllers:
        raise RefusedError(
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
            f"Controller ID {node_id} is not currently registered.",
        )
    record = unregister_controller_record(node_id)
    return decided(image, (record,), UnregisterControllerResponse(error_message=None))


def _read(request: pb.RegisterControllerRequest) -> ControllerRegistration:
    return ControllerRegistration(
        id=NodeId(request.controller_id),
        incarnation_id=request_uuid(request.incarnation_id),
        endpoints=tuple(
            Endpoint(found.name, found.host, found.port, found.security_protocol)
            for found in request.listeners[: REGISTRATION_LIST_MAX + 1]
        ),
        features=tuple(
            FeatureRange(found.name, found.min_supported_version, found.max_supported_version)
            for found in request.features[: REGISTRATION_LIST_MAX + 1]
        ),
        software_version=request.software_version,
    )


def _check(image: MetadataImage, wanted: ControllerRegistration) -> None:
    """Raise RefusedError if a controller's registration is invalid, or does not fit the cluster."""
    if wanted.id < 0:
        raise _invalid(f"{wanted.id} is no id of a controller")
    if wanted.id not in image.controllers and len(image.controllers) >= CONTROLLERS_MAX:
        raise _invalid(
            f"{CONTROLLERS_MAX} controllers are registered; unregister those that are gone"
        )
    lists = (wanted.endpoints, wanted.features)
    if any(len(one) > REGISTRATION_LIST_MAX for one in lists):
        raise _invalid(f"more than {REGISTRATION_LIST_MAX} listeners or features")
    for names in ([one.name for one in wanted.endpoints], [one.name for one in wanted.features]):
        if len(set(names)) != len(names) or any(len(name.encode()) > INT16_MAX for name in names):
            raise _invalid("a name of a listener or feature is too long, or occurs twice")
    for _, host, port, protocol in wanted.endpoints:
        is_valid = is_host(host) and 0 < port <= PORT_MAX and 0 <= protocol <= SECURITY_PROTOCOL_MAX
        if not is_valid:
            raise _invalid("a listener has no valid host, port or security protocol")
    if len(wanted.software_version) > VERSION_LENGTH_MAX:
        raise _invalid(f"its version has more than {VERSION_LENGTH_MAX} characters")
    for one in wanted.features:
        if not 0 <= one.lowest <= one.highest <= INT16_MAX:
            raise _invalid(f"the levels of {one.name!r:.80} are invalid")
    ranges = {one.name: LevelRange(one.lowest, one.highest) for one in wanted.features}
    missing = uncovered(image.features.items(), ranges)
    if missing is not None:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Unable to register controller {wanted.id}, because it does not support the finalized"
            f" level {image.features[missing]} of {missing}.",
        )


def _invalid(reason: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_REGISTRATION, f"Controller registration: {reason}.")
