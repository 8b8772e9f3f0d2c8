"""A bucket in a directory, with the segments of two topics."""

import json
import os
import shutil
import time
from pathlib import Path
from uuid import UUID

import pytest
import trio

from ottla.broker.groups.offsets.uploaded_offsets import StoredOffset, encoded_parts
from ottla.storage.tier.object_names import group_offsets_key
from ottla.storage.tier.obstore_driver import open_object_store
from ottla.storage.tier.store_settings import StoreSettings
from tests.storage.tier.example_bucket import CLUSTER_ID, ExampleTopic, fill_bucket

AUDIT = ExampleTopic("audit", UUID(int=78), partition_count=1, batch_count=20)


@pytest.fixture(scope="session")
def filled_bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a bucket that contains segments. Tests copy it."""
    pytest.importorskip("obstore")
    directory = tmp_path_factory.mktemp("bucket")

    async def fill() -> None:
        async with open_object_store(StoreSettings(uri=f"file://{directory}")) as store:
            await fill_bucket(store, tmp_path_factory.mktemp("logs"), (ExampleTopic(), AUDIT))

    trio.run(fill)
    return directory


@pytest.fixture
def bucket(filled_bucket: Path, tmp_path: Path) -> Path:
    """The directory of a bucket that contains segments, which a test may change."""
    return Path(shutil.copytree(filled_bucket, tmp_path / "bucket"))


def files(bucket: Path, suffix: str) -> list[Path]:
    """Return the objects of one kind in a bucket, by their keys."""
    return sorted(bucket.rglob(f"*{suffix}"))


def cluster_in(directory: Path, *settings: str) -> Path:
    """Write the files of a local cluster that is stopped, and return its directory."""
    directory.mkdir()
    (directory / "broker-1.properties").write_text("\n".join(("node.id=1", *settings)))
    node = {"id": 1, "address": "localhost:1", "dir": str(directory / "broker-1"), "pid": 0}
    content = {"bootstrap": "localhost:1", "controllers": [], "brokers": [node]}
    (directory / "cluster.json").write_text(json.dumps(content))
    return directory


def offsets_object(*offsets: StoredOffset, epoch: int = 4) -> tuple[str, bytes]:
    """Return the key and the content of an object with committed offsets."""
    parts = encoded_parts(
        offsets,
        cluster_id=CLUSTER_ID,
        place=(3, epoch),
        partition_count=50,
        left_out_count=0,
    )
    return group_offsets_key(CLUSTER_ID, 3, epoch), b"".join(parts)


def put_offsets(bucket: Path, key: str, data: bytes, *, age_s: int = 3_600) -> None:
    path = bucket / key
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    then = time.time() - age_s
    os.utime(path, (then, then))
