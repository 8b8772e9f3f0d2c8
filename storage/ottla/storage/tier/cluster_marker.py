"""The object `cluster.json`, which reserves a prefix of an object store for one cluster.

The brokers of a second cluster with the same prefix refuse to start. Two clusters would not
overwrite each other's segments, because the keys contain the cluster id. However, an operator who
deletes the objects of one cluster, or adds a lifecycle rule for the prefix, would destroy the
objects of the other cluster.
"""

import json

from ottla.model.errors import CorruptDataError
from ottla.storage.tier.object_names import is_cluster_id
from ottla.storage.tier.store_seam import ObjectExistsError, ObjectStore, StoreRefusedError

MARKER_KEY = "cluster.json"
MARKER_FORMAT = 1
MARKER_BYTES_MAX = 4096
"""Maximum size in bytes of a cluster marker (the object `cluster.json`) that is read. Markers of
this release have less than 200 bytes."""


def encode_cluster_marker(cluster_id: str) -> bytes:
    """Return the content of a cluster marker (the object `cluster.json`). A cluster always has the
    same content, so that a repeated upload can be recognised."""
    assert is_cluster_id(cluster_id)
    return json.dumps({"format": MARKER_FORMAT, "cluster_id": cluster_id}).encode()


def decode_cluster_marker(data: bytes) -> str:
    """Return the cluster id in a cluster marker (the object `cluster.json`). Raises
    CorruptDataError if the content is not a marker of a known format."""
    if len(data) > MARKER_BYTES_MAX:
        raise CorruptDataError(f"{MARKER_KEY}: more than {MARKER_BYTES_MAX} bytes")
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        raise CorruptDataError(f"{MARKER_KEY}: it is not JSON") from None
    if not isinstance(values, dict) or values.get("format") != MARKER_FORMAT:
        raise CorruptDataError(f"{MARKER_KEY}: its format is not {MARKER_FORMAT}")
    cluster_id = values.get("cluster_id")
    if not isinstance(cluster_id, str) or not is_cluster_id(cluster_id):
        raise CorruptDataError(f"{MARKER_KEY}: it has no cluster id")
    return cluster_id


async def claim_prefix(store: ObjectStore, cluster_id: str) -> None:
    """Reserve the prefix of an object store for a cluster. Does nothing if the cluster has reserved
    it before.

    Raises StoreRefusedError if the prefix belongs to another cluster, or if another object has the
    marker's key. Also raises the errors of the store.
    """
    marker = encode_cluster_marker(cluster_id)
    try:
        await store.put(MARKER_KEY, marker, only_new=True)
        return
    except ObjectExistsError:
        found = await store.get(MARKER_KEY, 0, MARKER_BYTES_MAX + 1)
    try:
        owner = decode_cluster_marker(found)
    except CorruptDataError as error:
        raise StoreRefusedError(
            f"the object store contains an unknown object, {error.where}; use another prefix"
        ) from None
    if owner != cluster_id:
        raise StoreRefusedError(
            f"this prefix of the object store belongs to cluster {owner}, and this cluster is"
            f" {cluster_id}; give each cluster a prefix of its own in remote.log.storage.uri"
        )
