"""The task that keeps a controller registered, in virtual time."""

from dataclasses import replace
from uuid import UUID

import trio
from trio.testing import MockClock

from ottla.controller.registration_driver import (
    PAUSE_MS_MAX,
    ControllerRegistrar,
    registration_of,
)
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import METADATA_VERSION, OTTLA_VERSION
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.metadata.persistent_map import PersistentMap
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.settings.controller import ControllerConfig
from ottla.proto import controller_pb2 as pb

WANTED = registration_of(ControllerConfig(node_id=NodeId(101)), UUID(int=7))


def at_level(level: int) -> MetadataImage:
    return replace(EMPTY, features=PersistentMap({METADATA_VERSION: 33, OTTLA_VERSION: level}))


class Cluster:
    """The metadata that a registrar follows, and an active controller that may refuse."""

    def __init__(self, *, refusals: int = 0, is_remembered_only: bool = False) -> None:
        self.refusals = refusals
        self.is_remembered_only = is_remembered_only
        self.asked_s: list[float] = []
        self.registrar = ControllerRegistrar(WANTED, "cluster", self._register)
        self.image = EMPTY

    async def _register(self, request: pb.RegisterControllerRequest) -> None:
        self.asked_s.append(trio.current_time())
        if self.refusals:
            self.refusals -= 1
            raise RefusedError(ErrorCode.NOT_CONTROLLER)
        assert request.controller_id == WANTED.id
        if self.is_remembered_only:
            return
        controllers = self.image.controllers.set(WANTED.id, WANTED)
        await self.publish(replace(self.image, controllers=controllers))

    async def publish(self, image: MetadataImage) -> None:
        delta, self.image = MetadataDelta.between(self.image, image), image
        await self.registrar.publish(delta, image)


async def test_a_controller_registers_once_when_the_level_has_registrations(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    cluster = Cluster()
    nursery.start_soon(cluster.registrar.run)
    await trio.sleep(60)
    assert cluster.asked_s == []

    await cluster.publish(at_level(1))
    await trio.sleep(60)
    await cluster.publish(cluster.image)
    await trio.sleep(60)

    assert len(cluster.asked_s) == 1


async def test_below_that_level_registrations_are_repeated(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    cluster = Cluster(is_remembered_only=True)
    nursery.start_soon(cluster.registrar.run)
    await cluster.publish(at_level(0))
    await trio.sleep(60)

    assert 60_000 / PAUSE_MS_MAX <= len(cluster.asked_s) < 20
    cluster.is_remembered_only = False
    raised_s = trio.current_time()
    await cluster.publish(at_level(1))
    await trio.sleep(60)
    assert cluster.asked_s[-1] == raised_s


async def test_a_running_controller_that_is_unregistered_registers_again(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    cluster = Cluster()
    nursery.start_soon(cluster.registrar.run)
    await cluster.publish(at_level(1))
    await trio.sleep(60)
    unregistered_s = trio.current_time()

    await cluster.publish(at_level(1))
    await trio.sleep(60)

    assert len(cluster.asked_s) == 2
    assert cluster.asked_s[1] - unregistered_s < 0.2


async def test_a_refused_registration_is_repeated_with_growing_pauses(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    cluster = Cluster(refusals=12)
    nursery.start_soon(cluster.registrar.run)
    await cluster.publish(at_level(1))
    await trio.sleep(120)

    pauses_ms = [
        round(1000 * (after - before))
        for before, after in zip(cluster.asked_s, cluster.asked_s[1:], strict=False)
    ]
    assert len(cluster.asked_s) == 13
    assert pauses_ms == sorted(pauses_ms)
    assert max(pauses_ms) == PAUSE_MS_MAX
    assert WANTED.id in cluster.image.controllers
