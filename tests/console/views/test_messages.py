"""Pages of records against a real broker: formats, hostile contents, hidden messages, downloads,
live tails and new records."""

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import fastavro
import pytest
import trio
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from ottla.client import open_admin, open_producer
from ottla.client.admin import Admin
from ottla.client.testing import ClusterUnderTest
from ottla.client.testing.fixtures import ottla_cluster
from ottla.console.page_types import ConsoleConfig, UserRole
from ottla.console.records import schema_formats_driver
from ottla.console.views.messages import messages, tail
from tests.console.console_fixture import Browser, open_browser, page_request

__all__ = ["ottla_cluster"]

SCRIPT = b'<script>alert("\xc3\xa9")</script>'
TERMINAL = b"\x1b[2J\x1b]0;owned\x07"
BIDI = "\u202ecod.exe\u2066".encode()
INVALID = b"\xff\xfe\x00caf\xe9"
LARGE = b"x" * 1_000_000
HOSTILE = (SCRIPT, TERMINAL, BIDI, INVALID, LARGE, b"{{7*7}}", b'"><img src=x onerror=a()>')
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}],
}


@asynccontextmanager
async def console_of(
    cluster: ClusterUnderTest,
    config: ConsoleConfig | None = None,
    role: UserRole = UserRole.ADMIN,
) -> AsyncIterator[tuple[Browser, Admin, Any]]:
    with trio.fail_after(150):
        async with (
            open_admin(cluster.bootstrap) as admin,
            open_producer(cluster.bootstrap) as producer,
            open_browser(admin, bootstrap=cluster.bootstrap, role=role, config=config) as browser,
        ):
            await admin.create_topic("t")
            yield browser, admin, producer


def avro_of(value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), value)
    return out.getvalue()


async def test_hostile_contents_are_shown_as_text_everywhere(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with console_of(ottla_cluster) as (browser, _, producer):
        for content in HOSTILE:
            headers = [(content[:200].decode(errors="replace"), content[:1_000])]
            await producer.send("t", content, key=content[:10_000], headers=headers)
        await producer.flush()
        pages = [
            "/topics/t/records",
            "/topics/t/records?kf=text&vf=text",
            "/topics/t/records?vf=hex",
        ]
        pages += [f"/topics/t/records/0/{offset}" for offset in range(len(HOSTILE))]
        pages += [f"/topics/t/records/0/{offset}?kf=text&vf=json" for offset in range(len(HOSTILE))]
        for page in pages:
            html = await browser.get(page)
            assert "<script>alert" not in html
            assert "<img" not in html
            assert not any(sign in html for sign in ("\x1b", "\x07", "\u202e", "\u2066", "\x00"))
            assert "{{7*7}}" in html or "records/0/" in page
        html = await browser.get("/topics/t/records")
        assert len(html) < 100_000
        assert "cut, 977 KiB" in html
        assert "&lt;script&gt;alert(" in html
        assert r"\x1b[2J\x1b]0;owned\x07" in html
        assert "ff fe 00 63 61 66 e9" in html
        html = await browser.get("/topics/t/records/0/4")
        assert "Only the beginning is shown; the download is complete." in html
        raw = await browser.http.get("/topics/t/records/0/4?raw=value")
        assert raw.content == LARGE
        raw = await browser.http.get("/topics/t/records/0/0?raw=value")
        assert raw.content == SCRIPT
        assert raw.headers["content-type"] == "application/octet-stream"
        assert raw.headers["content-disposition"] == 'attachment; filename="t-0-0.value"'
        assert raw.headers["x-content-type-options"] == "nosniff"


async def test_hidden_messages_are_hidden_everywhere(ottla_cluster: ClusterUnderTest) -> None:
    secret = "4711-secret"
    config = ConsoleConfig(hides_messages=True)
    async with console_of(ottla_cluster, config) as (browser, admin, producer):
        await producer.send(
            "t", f'{{"a": "{secret}"}}'.encode(), key=secret.encode(), headers=[(secret, b"x")]
        )
        await producer.flush()
        for path in ("", "?kf=hex&vf=json", "?filter=offset+%3D+0", "?from=oldest", "/0/0"):
            html = await browser.get(f"/topics/t/records{path}")
            assert secret not in html
            assert "34 37 31 31" not in html
            assert "hidden" in html
        for path in (
            "?filter=value+contains+%224711%22",
            "?filter=header.a+exists+or+offset=0",
            f"?key={secret}",
            "?download=json",
            "/0/0?raw=key",
            "/0/0?raw=value",
        ):
            html = await browser.get(f"/topics/t/records{path}", 403)
            assert "messages are hidden" in html
        request = page_request(
            admin, path={"topic": "t"}, query={"filter": "key exists"}, config=config
        )
        with pytest.raises(Exception, match="messages are hidden"):
            await anext(tail(request))
        stream = tail(page_request(admin, path={"topic": "t"}, config=config))
        assert (await anext(stream)).context["records"] == ()
        await producer.send("t", secret.encode())
        await producer.flush()
        rows: Any = (await anext(stream)).context["records"]
        assert [one.value.format for one in rows] == ["hidden"]
        assert secret not in repr(rows)
        await stream.aclose()


async def test_records_are_decoded_with_schemas_in_files(
    ottla_cluster: ClusterUnderTest, tmp_path: Path
) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(AVRO))
    message = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    field: Any = message.message_type.add(name="Order").field.add(name="id", number=1)
    field.type, field.label, field.json_name = 3, 1, "id"
    (tmp_path / "shop.desc").write_bytes(FileDescriptorSet(file=[message]).SerializeToString())
    (tmp_path / "broken.avsc").write_text("{")
    names = ("order.avsc", "shop.desc", "broken.avsc", "missing.avsc")
    config = ConsoleConfig(schema_files=tuple(str(tmp_path / name) for name in names))
    async with console_of(ottla_cluster, config) as (browser, _, producer):
        await producer.send("t", avro_of({"id": 9_007_199_254_740_993, "note": "<b>"}))
        await producer.send("t", b"\x08\x07")
        await producer.flush()
        html = await browser.get("/topics/t/records?vf=file:order.avsc")
        assert "{&#34;id&#34;: 9007199254740993, &#34;note&#34;: &#34;&lt;b&gt;&#34;}" in html
        assert "the bytes do not match" in html
        assert "Avro, order.avsc" in html
        html = await browser.get("/topics/t/records?vf=file:shop.desc:shop.Order&filter=value.id=7")
        assert "{&#34;id&#34;: &#34;7&#34;}" in html
        assert "1 records (2 bytes)" not in html
        assert "broken.avsc: " in html
        assert "missing.avsc: " in html
        html = await browser.get("/topics/t/records?vf=file:../../etc/passwd")
        assert "root:" not in html


async def test_records_are_decoded_by_the_registry_of_the_settings_only(
    ottla_cluster: ClusterUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.client.registry.file_registry import file_registry
    from ottla.client.schemas import AvroSerializer

    registry = file_registry(tmp_path)
    asked = []

    @asynccontextmanager
    async def open_played(url: str, settings: Any) -> AsyncIterator[Any]:
        asked.append(url)
        yield registry

    monkeypatch.setattr(schema_formats_driver, "open_registry", open_played)
    config = ConsoleConfig(registry_url="http://registry:8081")
    async with console_of(ottla_cluster, config) as (browser, _, producer):
        serializer: AvroSerializer[Any] = AvroSerializer(registry, json.dumps(AVRO))
        encoded = await serializer.serialize("t", "value", {"id": 17, "note": "n"})
        for value in (encoded.data, b"\x00\x00\x00\x99\x99x", b"\x00binary", b"no-frame-here"):
            await producer.send("t", value)
        await producer.flush()
        html = await browser.get("/topics/t/records")
        assert "{&#34;id&#34;: 17, &#34;note&#34;: &#34;n&#34;}" in html
        assert "Avro, schema 1" in html
        assert "no-frame-here" in html
        html = await browser.get("/topics/t/records?vf=registry&registry_url=http://evil:1")
        assert "the registry has no schema 39321" in html
        html = await browser.get("/topics/t/records?filter=value.id=17&vf=registry&url=http://evil")
        assert "Avro, schema 1" in html
        assert "no-frame-here" not in html
        html = await browser.get("/topics/t/records/0/0")
        assert "Avro, schema 1" in html
    assert set(asked) == {"http://registry:8081"}


async def test_an_unreachable_registry_costs_one_attempt(ottla_cluster: ClusterUnderTest) -> None:
    config = ConsoleConfig(registry_url="http://127.0.0.1:1")
    async with console_of(ottla_cluster, config) as (browser, _, producer):
        for number in range(20):
            await producer.send("t", b"\x00\x00\x00\x00%cvalue" % number)
        await producer.flush()
        html = await browser.get("/topics/t/records")
        assert html.count("127.0.0.1:1") >= 20


async def test_a_mistake_in_the_form_keeps_its_fields(ottla_cluster: ClusterUnderTest) -> None:
    async with console_of(ottla_cluster) as (browser, _, _producer):
        html = await browser.get("/topics/t/records?filter=value.+%3D+%3Cb%3E&partition=0", 400)
        assert "filter: at character 8: a name is expected after the dot" in html
        assert 'value="value. = &lt;b&gt;"' in html
        await browser.get("/topics/t/records?partition=9", 404)
        await browser.get("/topics/none/records", 404)
        await browser.get("/topics/t/records/0/999", 404)
        await browser.get("/topics/t/records/9/0", 404)
        await browser.get("/topics/t/records/a/b", 404)


async def test_a_download_keeps_every_byte(ottla_cluster: ClusterUnderTest) -> None:
    async with console_of(ottla_cluster) as (browser, _, producer):
        await producer.send("t", b'{"a": 1}', key=b"k", headers=[("h", b"v"), ("n", None)])
        await producer.send("t", INVALID, key=None)
        await producer.send("t", None, key=TERMINAL)
        await producer.flush()
        found = await browser.http.get("/topics/t/records?download=json&from=oldest")
        lines = [json.loads(line) for line in found.text.splitlines()]
        assert [one["offset"] for one in lines] == [0, 1, 2]
        assert (lines[0]["key"], lines[0]["value"]) == ("k", '{"a": 1}')
        assert lines[0]["headers"] == [{"name": "h", "value": "v"}, {"name": "n", "value": None}]
        assert (lines[1]["key"], lines[1]["value_base64"]) == (None, "//4AY2Fm6Q==")
        assert (lines[2]["key"].encode(), lines[2]["value"]) == (TERMINAL, None)
        assert "\x1b" not in found.text


async def test_a_record_is_written_by_the_form(ottla_cluster: ClusterUnderTest) -> None:
    async with console_of(ottla_cluster) as (browser, _, _producer):
        html = await browser.act(
            "/topics/t/records/produce",
            {
                "key": "6b 31",
                "key_input": "hex",
                "value": "a\r\nb",
                "headers": "trace=1\r\n\r\nname = x=y",
            },
        )
        assert "The record was written to partition 0 at offset 0." in html
        assert "a\nb" in html
        assert "x=y" in html
        raw = await browser.http.get("/topics/t/records/0/0?raw=value")
        assert raw.content == b"a\nb"
        await browser.act("/topics/t/records/produce", {"no_key": "1", "tombstone": "1"})
        html = await browser.get("/topics/t/records/0/1")
        assert html.count("• </span> null") + html.count("null</span>") >= 2
        for form, reason in (
            ({"value": "zz", "value_input": "hex"}, "value: is not hexadecimal"),
            ({"value": "?", "value_input": "base64"}, "value: is not Base64"),
            ({"value_input": "pickle"}, "value_input: is &#39;pickle&#39;"),
            ({"headers": "nothing"}, "it must be NAME=VALUE"),
            ({"partition": "-1"}, "partition: is"),
        ):
            response = await browser.post("/topics/t/records/produce", form)
            assert (response.status_code, reason in response.text) == (400, True), response.text


async def test_new_records_are_followed(ottla_cluster: ClusterUnderTest) -> None:
    async with console_of(ottla_cluster) as (_, admin, producer):
        await producer.send("t", b"old")
        await producer.flush()
        stream = tail(page_request(admin, path={"topic": "t"}, query={"filter": 'key = "k"'}))
        assert (await anext(stream)).context["records"] == ()
        for number in range(120):
            await producer.send("t", b"%d" % number, key=b"k")
            await producer.send("t", b"other", key=b"l")
        await producer.flush()
        shown: Any = ()
        while not shown or shown[0].value.text != "119":
            view = await anext(stream)
            shown = view.context["records"]
        assert view.context["matched_count"] == 120
        assert [one.value.text for one in shown] == [str(119 - at) for at in range(50)]
        await stream.aclose()


async def test_a_page_of_records_is_complete_without_a_stream(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with console_of(ottla_cluster) as (browser, admin, producer):
        for number in range(120):
            await producer.send("t", b"%d" % number)
        await producer.flush()
        view = await messages(page_request(admin, path={"topic": "t"}))
        assert view.context["cursor"] == "0:70"
        html = await browser.get("/topics/t/records?cursor=0:70")
        assert "Older records" in html
        assert "First page" in html
        html = await browser.get("/topics/t/records?live=1&filter=offset+%3E+3")
        assert 'data-live="/live/topics/t/records?live=1&amp;filter=offset+%3E+3"' in html
