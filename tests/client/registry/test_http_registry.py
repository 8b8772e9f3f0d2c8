"""The registry's client over HTTP: retries, failover, logins, limits."""

import asyncio
import json
import ssl
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from ottla.client.registry.http_registry import (
    REPLY_BYTES_MAX,
    RegistryConfig,
    open_blocking_registry,
    open_registry,
)
from ottla.client.registry.registry_errors import (
    InvalidSchemaError,
    RegistryRefusedError,
    RegistryUnavailableError,
    SchemaTooLargeError,
    UnknownSchemaError,
)
from ottla.client.registry.schema_registry import RegistryReply, run_blocking
from ottla.client.registry.schema_values import SCHEMA_BYTES_MAX, Schema, SchemaFormat
from ottla.model.errors import ConfigError
from tests.client.registry.registry_server import serve_registry
from tests.conftest import CertificateAuthority

SCHEMA = Schema('{"type":"record","name":"R","fields":[]}')
HASTY = RegistryConfig(retry_count=1, retry_pause_s=0.001)


async def test_schemas_are_registered_and_read_once(tmp_path: Path) -> None:
    with serve_registry(tmp_path) as server:
        async with open_registry(server.url) as registry:
            for _ in range(3):
                registered = await registry.register("a/b", SCHEMA, is_normalized=True)
                assert (await registry.schema_by_id(registered.id)).schema == SCHEMA
        assert server.asked == [
            "POST /subjects/a%2Fb/versions?normalize=true",
            "GET /schemas/ids/1",
        ]


def test_the_client_works_in_asyncio(tmp_path: Path) -> None:
    async def scenario(url: str) -> int:
        async with open_registry(url) as registry:
            return (await registry.register("a", SCHEMA)).id

    with serve_registry(tmp_path) as server:
        assert asyncio.run(scenario(server.url)) == 1


def test_the_client_works_without_a_loop(tmp_path: Path) -> None:
    with serve_registry(tmp_path) as server:
        server.planned.append(RegistryReply(503, b""))
        with open_blocking_registry(server.url, HASTY) as registry:
            assert run_blocking(registry.register("a", SCHEMA)).id == 1
            server.planned.append(RegistryReply(200, bytes(REPLY_BYTES_MAX + 1)))
            with pytest.raises(SchemaTooLargeError):
                run_blocking(registry.latest_schema("a"))


def test_a_call_that_needs_a_loop_is_refused_without_one() -> None:
    class Suspension:
        def __await__(self) -> Generator[None, None, None]:
            yield

    async def call() -> None:
        await Suspension()

    with pytest.raises(RuntimeError, match="await its calls"):
        run_blocking(call())


async def test_temporary_errors_are_retried(tmp_path: Path) -> None:
    with serve_registry(tmp_path) as server:
        server.planned.extend([RegistryReply(429, b""), RegistryReply(500, b"{}"), None])
        config = RegistryConfig(retry_count=3, retry_pause_s=0.001)
        async with open_registry(server.url, config) as registry:
            assert (await registry.register("a", SCHEMA)).id == 1
        assert len(server.asked) == 4


async def test_the_next_address_is_tried_and_kept(tmp_path: Path) -> None:
    with serve_registry(tmp_path / "a") as broken, serve_registry(tmp_path / "b") as sound:
        broken.planned.append(RegistryReply(503, b""))
        async with open_registry(f"{broken.url}, {sound.url}/", HASTY) as registry:
            await registry.register("a", SCHEMA)
            assert await registry.list_subjects() == ["a"]
        assert (len(broken.asked), len(sound.asked)) == (1, 2)


async def test_a_registry_that_does_not_respond_is_named_after_the_last_attempt() -> None:
    async with open_registry("http://127.0.0.1:1", HASTY) as registry:
        with pytest.raises(RegistryUnavailableError, match=r"in 2 attempts: http://127.0.0.1:1"):
            await registry.schema_by_id(1)


async def test_a_registry_that_is_too_slow_is_unavailable(tmp_path: Path) -> None:
    release: list[bool] = []

    def hang() -> None:
        while not release:
            time.sleep(0.01)

    with serve_registry(tmp_path) as server:
        server.on_request = hang
        config = RegistryConfig(timeout_s=0.05, retry_count=0)
        async with open_registry(server.url, config) as registry:
            with pytest.raises(RegistryUnavailableError):
                await registry.schema_by_id(1)
        release.append(True)


async def test_refusals_have_the_codes_of_the_registry(tmp_path: Path) -> None:
    with serve_registry(tmp_path) as server:
        body = json.dumps({"error_code": 409, "message": "incompatible"}).encode()
        server.planned.append(RegistryReply(409, body))
        server.planned.append(RegistryReply(401, b"<html>"))
        async with open_registry(server.url) as registry:
            with pytest.raises(RegistryRefusedError, match="incompatible") as refused:
                await registry.register("a", SCHEMA)
            assert (refused.value.status, refused.value.error_code) == (409, 409)
            with pytest.raises(RegistryRefusedError, match="HTTP status 401"):
                await registry.register("a", SCHEMA)
            with pytest.raises(UnknownSchemaError):
                await registry.schema_by_id(9)


async def test_a_response_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with serve_registry(tmp_path) as server:
        server.planned.append(RegistryReply(200, bytes(REPLY_BYTES_MAX + 1)))
        text = "x" * (SCHEMA_BYTES_MAX + 1)
        server.planned.append(RegistryReply(200, json.dumps({"schema": text}).encode()))
        async with open_registry(server.url) as registry:
            with pytest.raises(SchemaTooLargeError, match="more than 2097152 bytes"):
                await registry.schema_by_id(1)
            with pytest.raises(SchemaTooLargeError, match="the schema has 1048577 bytes"):
                await registry.schema_by_id(1)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[]",
        b"null",
        b"{}",
        b'{"schema": 7}',
        b'{"schema": "x", "schemaType": "XML"}',
        b'{"schema": "x", "references": [{}]}',
        b'{"schema": "x", "guid": "no"}',
        b"[" * 100_000,
    ],
)
async def test_a_malformed_response_is_refused(tmp_path: Path, body: bytes) -> None:
    with serve_registry(tmp_path) as server:
        server.planned.append(RegistryReply(200, body))
        async with open_registry(server.url) as registry:
            with pytest.raises(InvalidSchemaError):
                await registry.schema_by_id(1)


async def test_nulls_stand_for_defaults(tmp_path: Path) -> None:
    with serve_registry(tmp_path) as server:
        reply = {"schema": "{}", "schemaType": "JSON", "references": None, "metadata": None}
        server.planned.append(RegistryReply(200, json.dumps(reply).encode()))
        async with open_registry(server.url) as registry:
            found = await registry.schema_by_id(5)
        assert (found.id, found.schema) == (5, Schema("{}", SchemaFormat.JSON))


async def test_logins_are_sent(tmp_path: Path) -> None:
    with serve_registry(tmp_path) as server:
        async with open_registry(server.url.replace("//", "//u%40v:p%3Aw@")) as registry:
            await registry.list_subjects()
        async with open_registry(
            server.url, RegistryConfig(basic_auth=("u", "p"), headers=(("target-sr-cluster", "l"),))
        ) as registry:
            await registry.list_subjects()
        tokens = iter(["one", "two"])
        config = RegistryConfig(bearer_token=lambda: next(tokens))
        async with open_registry(server.url, config) as registry:
            await registry.list_subjects()
            await registry.list_subjects()
        sent = [headers["authorization"] for headers in server.headers]
        assert sent == ["Basic dUB2OnA6dw==", "Basic dTpw", "Bearer one", "Bearer two"]
        assert server.headers[1]["target-sr-cluster"] == "l"
        assert all(headers["accept-encoding"] == "identity" for headers in server.headers)


async def test_tls_has_a_ca_and_the_certificate_of_a_client(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue())
    context.load_verify_locations(authority.file)
    context.verify_mode = ssl.CERT_REQUIRED
    with serve_registry(tmp_path / "registry", tls=context) as server:
        config = RegistryConfig(
            ca_file=str(authority.file), certificate_file=str(authority.issue(common_name="c"))
        )
        async with open_registry(server.url, config) as registry:
            assert await registry.list_subjects() == []
        async with open_registry(server.url, RegistryConfig(retry_count=0)) as registry:
            with pytest.raises(RegistryUnavailableError, match=r"(?i)certificate"):
                await registry.list_subjects()


@pytest.mark.parametrize("urls", ["", "localhost:8081", "ftp://x", []])
async def test_an_address_is_a_url(urls: str | list[str]) -> None:
    with pytest.raises(ConfigError, match="urls: "):
        async with open_registry(urls):
            pass


async def test_there_is_one_login() -> None:
    config = RegistryConfig(bearer_token="t")
    with pytest.raises(ConfigError, match="either basic_auth or bearer_token"):
        async with open_registry("http://user:word@localhost", config):
            pass


async def test_a_file_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    config = RegistryConfig(ca_file=str(tmp_path / "missing.pem"))
    with pytest.raises(ConfigError, match="ca_file, certificate_file: cannot be loaded"):
        async with open_registry("https://localhost", config):
            pass
