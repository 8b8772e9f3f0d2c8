"""Opens the object store of a broker, and reserves this cluster's prefix in it.

If the store refuses this broker, or if its prefix belongs to another cluster, the broker does not
start. If the store is down, the broker still starts: local records can be written and read, and the
first upload reserves the prefix.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import trio

from ottla.model.errors import ConfigError
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.storage.tier import STORE_URI
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.seams import NodeSeams
from ottla.storage.directories.meta_properties import MetaProperties
from ottla.storage.disk.directory_names import REMOTE_INDEX_DIRECTORY
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.tier.cluster_marker import claim_prefix
from ottla.storage.tier.counted_store import CountedStore, StoreTraffic
from ottla.storage.tier.obstore_driver import PART_BYTES
from ottla.storage.tier.reads.reader_limits import ReaderLimits
from ottla.storage.tier.reads.remote_reader_driver import RemoteReader, open_remote_reader
from ottla.storage.tier.store_seam import ObjectStore, StoreError, StoreRefusedError
from ottla.storage.tier.store_settings import store_settings_of

logger = logging.getLogger("ottla.broker.tier")

CLAIM_TIMEOUT_S = 20.0
"""Maximum seconds that the start of a broker waits for its object store. A store that rejects the
credentials responds within a few seconds."""


class ClusterStore(NamedTuple):
    """Object store of a cluster, opened for this broker."""

    store: ObjectStore
    reader: RemoteReader
    is_claimed: bool
    """True if the cluster has reserved its prefix of the store."""
    traffic: StoreTraffic
    """Counts of the requests and bytes of all calls to the store."""


@asynccontextmanager
async def open_cluster_store(
    seams: NodeSeams,
    config: BrokerConfig,
    properties: MetaProperties,
    disk: Disk,
    errors: UnexpectedErrors,
) -> AsyncIterator[ClusterStore | None]:
    """Yield the object store of a node's cluster, or None if tiered storage is off. The store is
    closed at the end of the block. Raises ConfigError if a setting is invalid, or if the store
    refuses this cluster."""
    if not config.tier.is_enabled:
        yield None
        return
    cluster_id = properties.cluster_id
    async with seams.open_object_store(store_settings_of(config.tier)) as opened:
        traffic = StoreTraffic()
        store = CountedStore(opened, traffic, part_bytes=PART_BYTES)
        is_claimed = await _claim(store, cluster_id)
        async with open_remote_reader(
            store,
            disk,
            f"{config.log_dirs[0]}/{REMOTE_INDEX_DIRECTORY}",
            cluster_id=cluster_id,
            limits=ReaderLimits(
                index_file_bytes=config.tier.index_cache_bytes_max,
                files_free_bytes=config.tier.local_free_bytes_min,
                gets_at_once=config.tier.reader_count,
            ),
            errors=errors,
        ) as reader:
            yield ClusterStore(store, reader, is_claimed, traffic)


async def _claim(store: ObjectStore, cluster_id: str) -> bool:
    """Reserve this cluster's prefix of the store. Returns False if the store is down."""
    try:
        with trio.fail_after(CLAIM_TIMEOUT_S):
            await claim_prefix(store, cluster_id)
    except StoreRefusedError as error:
        raise ConfigError(STORE_URI, str(error)) from None
    except (StoreError, trio.TooSlowError) as error:
        reason = str(error) or f"it did not answer within {CLAIM_TIMEOUT_S:.0f} s"
        logger.warning("the object store is not usable yet, and nothing is copied: %s", reason)
        return False
    return True
