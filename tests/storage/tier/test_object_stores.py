"""Every implementation of an object store keeps the contract: memory, obstore with a directory, and
obstore with an S3 server, if moto's is installed (`pip install 'moto[s3,server]'`)."""

import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest
import trio

from ottla.model.errors import ConfigError
from ottla.storage.tier.obstore_driver import open_object_store
from ottla.storage.tier.store_seam import ObjectStore, StoreError, StoreRefusedError
from ottla.storage.tier.store_settings import StoreSettings
from tests.storage.tier.store_conformance import CHECKS, Check

BUCKET = "segments"
CREDENTIALS = {"access_key_id": "an-id", "secret_access_key": "a-secret", "region": "us-east-1"}
UNIQUE = count()

has_obstore = pytest.mark.skipif(
    find_spec("obstore") is None,
    reason="needs obstore: pip install -e '.[tiered]'",
)


@pytest.fixture(scope="module")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an S3 server with one bucket."""
    beside = Path(sys.executable).parent / "moto_server"
    program = str(beside) if beside.exists() else shutil.which("moto_server")
    if program is None:
        pytest.skip("there is no S3 server: pip install 'moto[s3,server]'")
    log = tmp_path_factory.mktemp("s3") / "log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [program, "-H", "127.0.0.1", "-p", "0"], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        while (found := re.search(r"(http://127\.0\.0\.1:\d+)", log.read_text())) is None:
            assert server.poll() is None, log.read_text()
            trio.run(trio.sleep, 0.1)
        request = urllib.request.Request(f"{found[1]}/{BUCKET}", method="PUT")
        with urllib.request.urlopen(request, timeout=60):
            yield found[1]
    finally:
        server.kill()
        server.wait()


@asynccontextmanager
async def _opened(kind: str, tmp_path: Path, endpoint: str) -> AsyncIterator[ObjectStore]:
    match kind:
        case "memory":
            settings = StoreSettings(uri="memory:")
        case "directory":
            settings = StoreSettings(uri=f"file://{tmp_path}")
        case _:
            settings = StoreSettings(
                uri=f"s3://{BUCKET}/test/{next(UNIQUE)}", endpoint=endpoint, **CREDENTIALS
            )
    with trio.fail_after(120):
        async with open_object_store(settings) as store:
            yield store


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_a_store_in_memory_keeps_the_contract(check: Check, tmp_path: Path) -> None:
    async with _opened("memory", tmp_path, "") as store:
        await check(store)


@has_obstore
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_a_directory_keeps_the_contract(check: Check, tmp_path: Path) -> None:
    async with _opened("directory", tmp_path, "") as store:
        await check(store)


@has_obstore
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_an_s3_server_keeps_the_contract(
    check: Check, tmp_path: Path, s3_endpoint: str
) -> None:
    async with _opened("s3", tmp_path, s3_endpoint) as store:
        await check(store)


@has_obstore
async def test_two_prefixes_of_a_bucket_do_not_see_each_other(
    tmp_path: Path, s3_endpoint: str
) -> None:
    async with (
        _opened("s3", tmp_path, s3_endpoint) as one,
        _opened("s3", tmp_path, s3_endpoint) as other,
    ):
        await one.put("a/b", b"x")
        assert [entry async for entry in other.entries("")] == []


@has_obstore
async def test_a_missing_bucket_is_a_refusal(s3_endpoint: str) -> None:
    settings = StoreSettings(uri="s3://no-such-bucket/x", endpoint=s3_endpoint, **CREDENTIALS)
    async with open_object_store(settings) as store:

        async def parts() -> AsyncIterator[bytes]:
            yield b"x"

        async def listed() -> None:
            async for _ in store.entries(""):
                pass

        for call in (
            lambda: store.put("a", b"x"),
            lambda: store.put("a", b"x", only_new=True),
            lambda: store.put_stream("a", parts()),
            lambda: store.get("a", 0, 1),
            lambda: store.delete(["a"]),
            listed,
        ):
            with pytest.raises(StoreRefusedError, match="does not exist"):
                await call()


@has_obstore
async def test_a_store_that_is_down_is_a_retriable_error_without_credentials() -> None:
    with trio.socket.socket() as closed:
        await closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    settings = StoreSettings(
        uri=f"s3://{BUCKET}/x", endpoint=f"http://127.0.0.1:{port}", **CREDENTIALS
    )
    with trio.fail_after(120):
        async with open_object_store(settings) as store:
            with pytest.raises(StoreError) as caught:
                await store.put("a", b"x")
    assert caught.value.is_retriable
    assert not isinstance(caught.value, StoreRefusedError)
    assert "a-secret" not in str(caught.value)


@has_obstore
async def test_a_call_to_a_store_that_hangs_is_cancelled() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")  # accepts nothing
    port = listeners[0].socket.getsockname()[1]
    settings = StoreSettings(
        uri=f"s3://{BUCKET}/x", endpoint=f"http://127.0.0.1:{port}", **CREDENTIALS
    )
    with trio.fail_after(120):
        async with open_object_store(settings) as store:
            for call in (
                lambda: store.put("a", b"x"),
                lambda: store.get("a", 0, 1),
                lambda: anext(aiter(store.entries(""))),
            ):
                with trio.move_on_after(0.2) as scope:
                    await call()
                assert scope.cancelled_caught
    await listeners[0].aclose()


@has_obstore
async def test_credentials_are_those_of_the_settings_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A session token of the environment belongs to other credentials."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-of-another")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id-of-another")
    heads: list[bytes] = []

    async def serve(stream: trio.SocketStream) -> None:
        heads.append(bytes(await stream.receive_some(65_536)))
        await stream.send_all(
            b"HTTP/1.1 403 Forbidden\r\nContent-Length: 58\r\nConnection: close\r\n\r\n"
            b"<Error><Code>SignatureDoesNotMatch</Code><X>a</X></Error>\n"
        )

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, serve, 0)
            port = listeners[0].socket.getsockname()[1]
            settings = StoreSettings(
                uri=f"s3://{BUCKET}/x", endpoint=f"http://127.0.0.1:{port}", **CREDENTIALS
            )
            async with open_object_store(settings) as store:
                with pytest.raises(StoreRefusedError, match="SignatureDoesNotMatch") as caught:
                    await store.put("a", b"x")
            nursery.cancel_scope.cancel()
    (head,) = heads
    assert b"an-id" in head
    assert b"another" not in head
    assert "a-secret" not in str(caught.value)


@has_obstore
@pytest.mark.parametrize("name", ["none", "file"])
async def test_a_missing_directory_is_an_error_of_the_setting(tmp_path: Path, name: str) -> None:
    """A file system that is not mounted must not be replaced by a new directory."""
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(ConfigError, match=r"remote\.log\.storage\.uri: there is no directory"):
        async with open_object_store(StoreSettings(uri=f"file://{tmp_path}/{name}")):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@has_obstore
async def test_a_missing_file_of_certificates_is_an_error_of_the_setting(tmp_path: Path) -> None:
    settings = StoreSettings(uri="s3://bucket/x", ca_file=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"remote\.log\.storage\.ca\.file: cannot be read"):
        async with open_object_store(settings):
            pass


async def test_without_obstore_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.exceptions", None)
    with pytest.raises(ConfigError, match=r"\[tiered\]|obstore"):
        async with open_object_store(StoreSettings(uri="s3://bucket/x")):
            pass
    async with open_object_store(StoreSettings(uri="memory:")) as store:
        await store.put("a", b"x")
