"""Maintains the registration of this controller at the active controller (KIP-919).

A controller registers when the metadata lacks its registration, or contains a different one. This
is the case after its start, after ottla.version was raised to a level that has registrations, and
after an operator has unregistered the running controller. Below that level, the active controller
stores registrations only in memory, so this controller registers repeatedly.
"""

import logging
from collections.abc import Awaitable, Callable
from uuid import UUID

import trio

from ottla.controller.controller_driver import Controller
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import OFFERED
from ottla.metadata.image import EMPTY, ControllerRegistration, FeatureRange, MetadataImage
from ottla.metadata.image import Endpoint as ImageEndpoint
from ottla.model.errors import RefusedError
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.endpoints import SECURITY_PROTOCOLS
from ottla.model.version import VERSION
from ottla.proto import controller_pb2 as pb
from ottla.proto import metadata_pb2

_LOGGER = logging.getLogger(__name__)

DEADLINE_MS = 5_000
"""Timeout in ms of one attempt to register this controller. With a shorter one, an election fails
more attempts; with a longer one, a new metadata image is noticed later."""

PAUSE_MS_FIRST = 100
PAUSE_MS_MAX = 5_000
"""Maximum delay in ms between two attempts to register this controller. With a longer delay, a new
active controller learns later which controllers exist. With a shorter one, a controller that
refuses the registration gets more requests."""

Register = Callable[[pb.RegisterControllerRequest], Awaitable[None]]
"""Function that sends a controller's registration to the active controller. Raises RefusedError if
the registration is refused."""


def registration_of(config: ControllerConfig, incarnation_id: UUID) -> ControllerRegistration:
    """Return the registration of a controller with the addresses in its settings."""
    return ControllerRegistration(
        id=config.node_id,
        incarnation_id=incarnation_id,
        endpoints=tuple(
            ImageEndpoint(one.name, one.host, one.port, SECURITY_PROTOCOLS[one.protocol])
            for one in config.advertised_addresses
        ),
        features=tuple(
            FeatureRange(name, levels.lowest, levels.highest)
            for name, levels in sorted(OFFERED.items())
        ),
        software_version=VERSION,
    )


def registration_request(
    wanted: ControllerRegistration, cluster_id: str
) -> pb.RegisterControllerRequest:
    """Return the request that registers a controller."""
    return pb.RegisterControllerRequest(
        controller_id=wanted.id,
        cluster_id=cluster_id,
        incarnation_id=wanted.incarnation_id.bytes,
        listeners=[
            metadata_pb2.Endpoint(name=name, host=host, port=port, security_protocol=protocol)
            for name, host, port, protocol in wanted.endpoints
        ],
        features=[
            metadata_pb2.FeatureRange(
                name=name, min_supported_version=lowest, max_supported_version=highest
            )
            for name, lowest, highest in wanted.features
        ],
        software_version=wanted.software_version,
    )


class ControllerRegistrar:
    """Background task that registers this controller, and metadata publisher that wakes the
    task."""

    name = "controller registration"

    def __init__(self, wanted: ControllerRegistration, cluster_id: str, register: Register) -> None:
        self._wanted = wanted
        self._request = registration_request(wanted, cluster_id)
        self._register = register
        self._image: MetadataImage = EMPTY
        self._last_reason: str | None = None
        """Reason why the controller's registration was last refused, or None. It is stored so that
        each reason is logged once."""
        self._changed = trio.Event()

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Receive a new metadata image, and wake up the registration task if the controller may
        have to register."""
        self._image = image
        if delta.changed_features or self._wanted.id in delta.changed_controllers:
            self._changed.set()

    @property
    def is_needed(self) -> bool:
        """True if the latest metadata image has finalized features, but not the current
        registration of this controller."""
        image, wanted = self._image, self._wanted
        return bool(image.features) and image.controllers.get(wanted.id) != wanted

    async def run(self) -> None:
        """Register this controller whenever the metadata lacks its registration, until
        cancelled."""
        pause_ms = PAUSE_MS_FIRST
        while True:
            self._changed = trio.Event()
            if not self.is_needed:
                pause_ms = PAUSE_MS_FIRST
                await self._changed.wait()
                continue
            try:
                await self._register(self._request)
            except RefusedError as refusal:
                # An active controller of release 0.2.0 refuses until it is upgraded.
                if refusal.message != self._last_reason:
                    _LOGGER.info("this controller is not registered yet: %s", refusal.message)
                self._last_reason = refusal.message
            else:
                self._last_reason = None
            with trio.move_on_after(pause_ms / 1000):
                await self._changed.wait()
            pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)


def register_at(controller: Controller, remote: Register) -> Register:
    """Return a function that registers a controller. On the active controller, the function
    registers it directly; on other nodes, it calls `remote`."""

    async def register(request: pb.RegisterControllerRequest) -> None:
        if controller.epoch is None:
            await remote(request)
        else:
            await controller.register_controller(request)

    return register
