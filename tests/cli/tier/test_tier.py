"""`ottla tier topics|verify|cost`: buckets are read without a cluster, and damages found."""

import json
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.cli.main import run
from ottla.cli.tier.request_costs import Cost, Prices, gets_of, puts_of
from ottla.cli.tier.store_options import Bucket, store_settings
from ottla.cli.tier.tier_verify import verify
from ottla.client.testing import open_test_cluster
from ottla.storage.tier.bucket_driver import scan_bucket
from ottla.storage.tier.memory_store import MemoryObjectStore
from ottla.storage.tier.object_names import SegmentObject
from tests.cli.tier.conftest import cluster_in, files
from tests.storage.tier.example_bucket import (
    CLUSTER_ID,
    SETTINGS,
    ExampleTopic,
    fill_bucket,
)


def output_of(
    capsys: pytest.CaptureFixture[str], verb: str, bucket: Path, *options: str, code: int = 0
) -> Any:
    """Run a verb, and return its JSON."""
    words = ["tier", verb, "--uri", f"file://{bucket}", "--format", "json", *options]
    assert run(words) == code, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_topics_are_listed_with_ids_settings_and_sizes(
    bucket: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit, orders = output_of(capsys, "topics", bucket)
    assert (audit["topic"], audit["partitions"], orders["topic"]) == ("audit", 1, "orders")
    assert (orders["id"], orders["partitions"]) == ("Dw4NDAsKSQiHBgUEAwIBAA", 2)
    assert orders["settings"] == SETTINGS
    own = [one for one in files(bucket, ".log") if one.parts[-3].startswith("orders")]
    assert orders["segments"] == len(own) > 2
    assert orders["size_bytes"] == sum(one.stat().st_size for one in own)
    assert 40 < orders["records"] <= 160
    assert run(["tier", "topics", "--uri", f"file://{bucket}"]) == 0
    assert "orders  Dw4NDAsKSQiHBgUEAwIBAA" in capsys.readouterr().out


def test_a_whole_bucket_is_sound(bucket: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = output_of(capsys, "verify", bucket, "--full")
    assert found["cluster_id"] == CLUSTER_ID
    assert found["flaws"] == [] == found["notes"]
    assert found["partitions"] == 3
    assert run(["tier", "verify", "--uri", f"file://{bucket}"]) == 0
    assert "sound: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("remove_log", "is missing"),
        ("shorten_log", "in its manifest"),
        ("shorten_indexes", "in its manifest"),
        ("garble_manifest", "it is not JSON"),
        ("rename_manifest", "it is the manifest of another segment"),
        ("remove_segment", "are missing"),
        ("flip_record", "does not match its CRC"),
        ("flip_index", "does not match its CRC"),
    ],
)
def test_a_damage_is_found(
    damage: str, problem: str, bucket: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = [one for one in files(bucket, ".manifest.json") if "orders" in str(one)][1]
    stem = str(manifest).removesuffix(".manifest.json")
    log, indexes = Path(f"{stem}.log"), Path(f"{stem}.indexes")
    match damage:
        case "remove_log":
            log.unlink()
        case "shorten_log":
            log.write_bytes(log.read_bytes()[:-1])
        case "shorten_indexes":
            indexes.write_bytes(indexes.read_bytes()[:-1])
        case "garble_manifest":
            manifest.write_bytes(b"{")
        case "rename_manifest":
            shutil.copy(files(bucket, ".manifest.json")[0], manifest)
        case "remove_segment":
            for one in (manifest, log, indexes):
                one.unlink()
        case "flip_record" | "flip_index":
            path = log if damage == "flip_record" else indexes
            content = bytearray(path.read_bytes())
            content[3] ^= 1
            path.write_bytes(content)
    options = ["--full"] if damage.startswith("flip") else []
    found = output_of(capsys, "verify", bucket, *options, code=2)
    assert any(problem in flaw["problem"] for flaw in found["flaws"]), found


def test_an_upload_without_manifest_and_a_foreign_object_are_notes(
    bucket: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = [one for one in files(bucket, ".manifest.json") if "orders" in str(one)][-1]
    last.unlink()
    (bucket / CLUSTER_ID / "readme.txt").write_text("mine")
    found = output_of(capsys, "verify", bucket)
    assert [one.partition(" of ")[0] for one in found["notes"]] == ["1 upload", "1 object"]


def test_a_cost_is_the_requests_of_each_segment(
    bucket: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, orders = output_of(capsys, "cost", bucket)
    assert orders["puts"] == 3 * orders["segments"]
    assert orders["upload"] == pytest.approx(orders["puts"] * 0.005 / 1000)
    assert run(["tier", "cost", "--uri", f"file://{bucket}", "--get-price", "1"]) == 0
    assert "all topics" in capsys.readouterr().out
    assert run(["tier", "cost", "--uri", f"file://{bucket}", "--put-price", "-1"]) == 1


def test_a_segment_of_a_gibibyte_takes_a_hundred_puts() -> None:
    assert puts_of(1 << 30) == 103 + 2 + 2
    assert gets_of(1 << 30) == 128 + 2
    one = Cost().plus(log_bytes=1 << 30, size_bytes=1 << 30)
    assert one.month(Prices()) == pytest.approx(0.023)
    assert one.upload(Prices()) == pytest.approx(107 * 0.005 / 1000)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--uri", "ftp://x"], "begins with s3://"),
        (["--uri", "file:///nowhere-at-all"], "there is no directory"),
        (["--config", "nowhere.properties"], "is not there"),
    ],
)
def test_a_bucket_that_is_not_named_right_is_refused(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("obstore")
    assert run(["tier", "topics", *words]) == 1
    assert sentence in capsys.readouterr().err


def test_a_place_without_a_cluster_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("obstore")
    assert run(["tier", "topics", "--uri", f"file://{tmp_path}"]) == 1
    assert "no cluster has used this place" in capsys.readouterr().err


def test_the_uri_may_be_in_a_file_of_settings(
    bucket: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broker.properties"
    path.write_text(f"node.id=1\nremote.log.storage.uri=file://{bucket}\n")
    assert run(["tier", "topics", "--config", str(path)]) == 0
    assert "orders" in capsys.readouterr().out


def test_a_partition_is_explained_by_its_segments(
    bucket: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = [one for one in files(bucket, ".manifest.json") if one.parts[-2] == "0"]
    found = json.loads(_explained(bucket, capsys, code=0))
    assert (found["start_offset"], found["end_offset"], found["gaps"]) == (0, 74, [])
    assert found["epochs"][:2] == [[3, 0], [4, 24]]
    assert {one["use"] for one in found["segments"]} == {"whole"}
    [one for one in own if "orders" in str(one)][1].unlink()
    assert json.loads(_explained(bucket, capsys, code=2))["gaps"] == [[18, 34]]
    for words in (["orders"], ["orders:9"], ["orders:x"]):
        assert run(["tier", "explain", *words, "--uri", f"file://{bucket}"]) == 1


def _explained(bucket: Path, capsys: pytest.CaptureFixture[str], *, code: int) -> str:
    words = ["tier", "explain", "orders:0", "--uri", f"file://{bucket}", "--format", "json"]
    assert run(words) == code
    return capsys.readouterr().out


def test_segments_are_fetched_as_the_files_that_a_broker_has(
    bucket: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tier", "fetch", "orders:1", "--uri", f"file://{bucket}", "--into", str(tmp_path)]
    assert run([*words, "--start-offset", "20", "--end-offset", "40"]) == 0
    names = sorted(one.name for one in (tmp_path / "orders-1").glob("*.log"))
    assert names == ["00000000000000000018.log", "00000000000000000034.log"]
    capsys.readouterr()
    assert run(["log", "dump", str(tmp_path / "orders-1" / names[0])]) == 0
    assert "18" in capsys.readouterr().out
    assert run(words) == 1  # the directory exists


async def test_a_segment_that_is_deleted_during_a_check_is_no_flaw(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    manifests = await fill_bucket(store, tmp_path, (ExampleTopic(partition_count=1),))
    scan = await scan_bucket(store, CLUSTER_ID)
    # The first segment was deleted. The second one lacks its records, but has a manifest.
    await store.delete([*manifests[0].names.keys(), manifests[1].names.key(SegmentObject.LOG)])
    bucket = Bucket(store, CLUSTER_ID)
    found = await verify(bucket, scan, topics=[], is_full=True)
    assert (found.vanished_count, found.flaw_count) == (1, 1)
    await store.delete([manifests[1].names.key(SegmentObject.MANIFEST)])
    found = await verify(bucket, scan, topics=[], is_full=True)
    assert (found.vanished_count, found.flaw_count) == (2, 0)


@pytest.mark.parametrize("is_default", [True, False])
def test_the_uri_is_that_of_a_stopped_local_cluster(
    is_default: bool,
    bucket: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    directory = cluster_in(
        tmp_path / ("ottla-data" if is_default else "mine"),
        f"remote.log.storage.uri=file://{bucket}",
    )
    options = [] if is_default else ["--dir", str(directory)]
    assert run(["tier", "topics", *options]) == 0
    assert "orders" in capsys.readouterr().out


def test_a_local_cluster_without_tiered_storage_has_no_bucket(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = cluster_in(tmp_path / "mine")
    assert run(["tier", "verify", "--dir", str(directory)]) == 1
    assert f"the cluster of {directory} has no remote.log.storage.uri" in capsys.readouterr().err
    assert run(["tier", "verify", "--dir", str(tmp_path / "none")]) == 1
    assert "cluster.json is not there" in capsys.readouterr().err


async def test_credentials_are_those_of_the_local_cluster(tmp_path: Path) -> None:
    directory = cluster_in(
        tmp_path / "mine",
        "remote.log.storage.uri=s3://bucket/mine",
        "remote.log.storage.secret.access.key=a-secret",
        "remote.log.storage.access.key.id=an-id",
    )
    options = {"config": None, "bootstrap_server": None, "profile": None, "command_config": None}
    arguments = Namespace(uri=None, dir=str(directory), **options)
    settings, is_described = await store_settings(arguments)
    assert (settings.uri, settings.secret_access_key) == ("s3://bucket/mine", "a-secret")
    assert not is_described
    arguments.uri = "s3://other"  # an option precedes the cluster
    assert (await store_settings(arguments))[0].uri == "s3://other"


async def test_a_broker_describes_its_bucket() -> None:
    described = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.uri": "memory:",
    }
    options = {"config": None, "dir": None, "profile": None, "command_config": None}
    with trio.fail_after(30):
        async with open_test_cluster(settings=described) as cluster:
            arguments = Namespace(uri=None, bootstrap_server=cluster.bootstrap, **options)
            settings, is_described = await store_settings(arguments)
    assert (settings.uri, is_described) == ("memory:", True)
