"""The object store of a broker at its start."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.broker.tier.tier_opening_driver import ClusterStore, open_cluster_store
from ottla.model.errors import ConfigError
from ottla.model.ids import NodeId
from ottla.model.settings.broker import load_broker_config
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.seams import NodeSeams
from ottla.storage.directories.meta_properties import MetaProperties
from ottla.storage.tier.cluster_marker import claim_prefix
from ottla.storage.tier.memory_store import MemoryObjectStore
from ottla.storage.tier.store_seam import ObjectStore, StoreError, StoreRefusedError
from ottla.storage.tier.store_settings import StoreSettings
from tests.broker.conftest import World
from tests.broker.tier.tiered_broker import CLUSTER_ID

OTHER_CLUSTER = "aVyN6nEfTFCY4mGkyA7S8w"


class BadStore(MemoryObjectStore):
    """A store in which every put fails."""

    def __init__(self, error: StoreError) -> None:
        super().__init__()
        self.error = error

    async def put(self, key: str, content: bytes, *, only_new: bool = False) -> None:
        raise self.error


@asynccontextmanager
async def opened(
    world: World, store: MemoryObjectStore, settings: Sequence[str] = ()
) -> AsyncIterator[ClusterStore | None]:
    texts = {
        "node.id": "1",
        "controller.quorum.voters": "100@localhost:9093",
        "log.dirs": str(world.directory),
        **dict(line.split("=", 1) for line in settings),
    }

    @asynccontextmanager
    async def open_store(settings: StoreSettings) -> AsyncIterator[ObjectStore]:
        yield store

    properties = cast(MetaProperties, SimpleNamespace(cluster_id=CLUSTER_ID, node_id=NodeId(1)))
    seams = cast(NodeSeams, SimpleNamespace(open_object_store=open_store))
    config, _ = load_broker_config(texts)
    async with open_cluster_store(
        seams, config, properties, world.disk, UnexpectedErrors()
    ) as found:
        yield found


TIERED = ("remote.log.storage.system.enable=true", "remote.log.storage.uri=memory:")


async def test_a_broker_reserves_the_prefix_of_its_cluster(world: World) -> None:
    store = MemoryObjectStore()
    for _ in range(2):
        async with opened(world, store, TIERED) as found:
            assert found is not None
            assert found.is_claimed


async def test_without_the_setting_no_store_is_opened(world: World) -> None:
    async with opened(world, BadStore(StoreRefusedError("no"))) as found:
        assert found is None


async def test_the_prefix_of_another_cluster_ends_the_start(world: World) -> None:
    store = MemoryObjectStore()
    await claim_prefix(store, OTHER_CLUSTER)
    with pytest.raises(ConfigError, match=f"belongs to cluster {OTHER_CLUSTER}"):
        async with opened(world, store, TIERED):
            pass


async def test_wrong_credentials_end_the_start(world: World) -> None:
    with pytest.raises(ConfigError, match="refuses the credentials"):
        async with opened(world, BadStore(StoreRefusedError("it refuses the credentials")), TIERED):
            pass


async def test_a_store_that_is_down_does_not_end_the_start(world: World) -> None:
    async with opened(world, BadStore(StoreError("the connection was refused")), TIERED) as found:
        assert found is not None
        assert not found.is_claimed
