"""Uploads and reads through obstore, with a directory as the store and real files as the cache."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import trio

from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.tier.manifest import CHUNK_BYTES
from ottla.storage.tier.object_names import SegmentObject
from ottla.storage.tier.obstore_driver import open_object_store
from ottla.storage.tier.reads.reader_limits import ReaderLimits
from ottla.storage.tier.reads.remote_reader_driver import open_remote_reader
from ottla.storage.tier.reads.requests_driver import CorruptObjectError
from ottla.storage.tier.segment_upload_driver import delete_segments, upload_segment
from ottla.storage.tier.store_seam import ObjectNotFoundError
from ottla.storage.tier.store_settings import StoreSettings
from tests.storage.tier.reads.reader_bench import read, read_all
from tests.storage.tier.segment_in_memory import upload_of
from tests.storage.tier.segments import NAMES
from tests.storage.tier.test_segment_upload import LARGE

has_obstore = pytest.mark.skipif(
    find_spec("obstore") is None, reason="needs obstore: pip install -e '.[tiered]'"
)


@has_obstore
async def test_a_segment_is_uploaded_read_and_deleted(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    settings = StoreSettings(uri=f"file://{tmp_path}/store")
    disk = RealDisk([str(tmp_path)])
    errors = UnexpectedErrors()
    with trio.fail_after(120):
        async with open_object_store(settings) as store:
            manifest = await upload_segment(store, LARGE, upload_of())
            segment = manifest.remote_segment
            for is_first in (True, False):
                async with open_remote_reader(
                    store,
                    disk,
                    f"{tmp_path}/cache",
                    cluster_id=NAMES.cluster_id,
                    limits=ReaderLimits(),
                    errors=errors,
                ) as reader:
                    with trio.move_on_after(0):
                        await read(reader, segment, 1600)
                    assert await read_all(reader, segment) == LARGE.log
                    while len(list((tmp_path / "cache" / "chunks").iterdir())) < 4:
                        await trio.sleep(0.01)
                    assert (reader.counts.gets > 0) == is_first
            log = tmp_path / "store" / manifest.names.key(SegmentObject.LOG)
            log.write_bytes(LARGE.log[: CHUNK_BYTES + 5])
            async with open_remote_reader(
                store,
                disk,
                f"{tmp_path}/other-cache",
                cluster_id=NAMES.cluster_id,
                limits=ReaderLimits(),
                errors=errors,
            ) as reader:
                with pytest.raises(CorruptObjectError, match="bytes instead of"):
                    await read_all(reader, segment)
                await delete_segments(store, [manifest.names])
                assert [entry async for entry in store.entries("")] == []
                with pytest.raises(ObjectNotFoundError):
                    await read(reader, segment, 1619)
    assert not errors.counts
