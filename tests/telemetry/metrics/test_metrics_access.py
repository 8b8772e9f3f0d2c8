"""Metrics for clients with a token, a password or a certificate, over real sockets."""

import ssl
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
import trio
import trustme

from ottla.model.errors import ConfigError
from ottla.model.settings.declare import values_of
from ottla.model.settings.telemetry.metrics import MetricsConfig
from ottla.model.settings.telemetry.metrics_access import MetricsAccess
from ottla.telemetry.metrics.metrics_http_driver import serve_metrics

HOST = "127.0.0.1"
TOKEN = "abcdefghijklmnop-1"
PORT = {"metrics.prometheus.port": "0"}


def access_of(**texts: str) -> MetricsAccess:
    keyed = {f"metrics.prometheus.{key.replace('_', '.')}": text for key, text in texts.items()}
    return MetricsConfig(**values_of(MetricsConfig, {**PORT, **keyed})[0]).prometheus_access


def render() -> Iterator[bytes]:
    yield b"ottla_x 1\n"


async def fetched(
    nursery: trio.Nursery,
    access: MetricsAccess,
    *,
    authorization: str = "",
    context: ssl.SSLContext | None = None,
) -> bytes | int | str:
    """Scrape once; return the text, the status of a refusal, or why there is no answer."""
    port = await nursery.start(partial(serve_metrics, render, host=HOST, port=0, access=access))
    scheme = "http" if context is None else "https"
    headers = {"Authorization": authorization} if authorization else {}
    request = Request(f"{scheme}://{HOST}:{port}/metrics", headers=headers)

    def fetch() -> bytes | int | str:
        try:
            with urlopen(request, context=context, timeout=60) as response:
                body: bytes = response.read()
                return body
        except HTTPError as error:
            error.close()
            return error.code
        except URLError as error:
            return str(error.reason)
        except OSError as error:
            return str(error)

    return await trio.to_thread.run_sync(fetch)


def basic(text: str) -> str:
    return f"Basic {b64encode(text.encode()).decode()}"


@pytest.mark.parametrize(
    ("authorization", "answer"),
    [
        (f"Bearer {TOKEN}", b"ottla_x 1\n"),
        (f"bearer  {TOKEN} ", b"ottla_x 1\n"),
        (basic("scraper:pass:word"), b"ottla_x 1\n"),
        ("", 401),
        (TOKEN, 401),
        (f"Bearer {TOKEN.upper()}", 401),
        (basic("scraper:pass"), 401),
        (basic("other:pass:word"), 401),
        (basic("other:"), 401),
        ("Basic %%%", 401),
    ],
)
async def test_the_text_is_for_who_shows_a_token_or_a_password(
    nursery: trio.Nursery, authorization: str, answer: bytes | int
) -> None:
    access = access_of(bearer_token=TOKEN, basic_users="scraper:pass:word, human:x")
    assert await fetched(nursery, access, authorization=authorization) == answer


@pytest.fixture
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(tmp_path: Path, ca: trustme.CA) -> dict[str, str]:
    own, trusted = tmp_path / "own.pem", tmp_path / "ca.pem"
    ca.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(str(own))
    own.chmod(0o600)
    ca.cert_pem.write_to_path(str(trusted))
    return {"ssl_keystore_location": str(own), "ssl_truststore_location": str(trusted)}


def client_of(ca: trustme.CA, *, shows: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    if shows:
        ca.issue_cert("scraper.example").configure_cert(context)
    return context


async def test_the_port_is_served_over_https(
    nursery: trio.Nursery, ca: trustme.CA, files: dict[str, str]
) -> None:
    access = access_of(ssl_keystore_location=files["ssl_keystore_location"])
    assert await fetched(nursery, access, context=client_of(ca)) == b"ottla_x 1\n"
    found = await fetched(nursery, access, context=client_of(trustme.CA()))
    assert "certificate verify failed" in str(found)
    assert "ottla_x" not in str(await fetched(nursery, access))


async def test_a_scraper_shows_a_certificate_where_that_is_asked(
    nursery: trio.Nursery, ca: trustme.CA, files: dict[str, str]
) -> None:
    access = access_of(**files)
    assert await fetched(nursery, access, context=client_of(ca, shows=True)) == b"ottla_x 1\n"
    assert isinstance(await fetched(nursery, access, context=client_of(ca)), str)


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ({"bearer_token": "short"}, r"metrics\.prometheus\.bearer\.token: "),
        ({"basic_users": "a"}, r"metrics\.prometheus\.basic\.users: "),
        ({"basic_users": "a:b,a:c"}, r"metrics\.prometheus\.basic\.users: "),
        ({"ssl_truststore_location": "/ca.pem"}, r"keystore\.location is not; give a certificate"),
    ],
)
def test_rules_that_cannot_hold_are_refused(texts: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        access_of(**texts)


def test_a_refusal_does_not_tell_the_secret() -> None:
    with pytest.raises(ConfigError) as caught:
        access_of(bearer_token="tell-no-one!")
    assert "tell-no-one" not in str(caught.value)


def test_rules_for_a_port_that_is_not_served_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"port: is not set, and metrics\.prometheus\.\*"):
        MetricsConfig(prometheus_token=TOKEN)


def test_secrets_are_not_shown() -> None:
    assert TOKEN not in repr(access_of(bearer_token=TOKEN))
    assert "secret" not in repr(access_of(basic_users="a:secret"))
