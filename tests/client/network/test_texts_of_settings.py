"""Settings of clients that UTF-8 cannot encode are refused where a config is made or opened."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from ottla.client import aio
from ottla.client.admin import open_admin
from ottla.client.network.cluster import open_cluster
from ottla.client.network.connection import open_connection
from ottla.model.errors import ConfigError
from ottla.model.settings.client import ConsumerConfig, ProducerConfig
from ottla.model.settings.declare import Definition, definitions, load
from ottla.model.settings.security.client_security import ClientSecurity
from ottla.model.settings.security.jaas import SCRAM_MODULE, JaasLogin

CONFIGS = (ProducerConfig, ConsumerConfig, ClientSecurity)
TEXT = "t\ud800"
BOOTSTRAP = "127.0.0.1:1"
NOT_IN_REQUESTS = {"sasl_token_provider"}
"""A function, whose result is checked when it is called."""


def text_settings() -> Iterator[tuple[type, Definition, str]]:
    """Yield the settings of each config that hold a text, a list of texts or a login."""
    for config in CONFIGS:
        hints = get_type_hints(config)
        for definition in definitions(config).values():
            hint = str(hints[definition.field_name])
            if "str" in hint or "JaasLogin" in hint:
                yield config, definition, hint


SETTINGS = [
    pytest.param(config, definition, hint, id=f"{config.__name__}-{definition.key}")
    for config, definition, hint in text_settings()
]


def test_every_other_field_is_no_text() -> None:
    for config in CONFIGS:
        known = {one.field_name for one in definitions(config).values()}
        walked = {one.field_name for kind, one, _ in text_settings() if kind is config}
        hints = get_type_hints(config)
        rest = {one.name for one in fields(config)} - walked - NOT_IN_REQUESTS
        assert {str(hints[name]) for name in rest} <= {
            str(hint) for hint in (int, bool, float, int | None)
        }
        assert rest <= known


@pytest.mark.parametrize(("config", "definition", "hint"), SETTINGS)
def test_a_text_that_no_request_can_hold_is_refused(
    config: Any, definition: Definition, hint: str
) -> None:
    value: Any = TEXT
    if "JaasLogin" in hint:
        value = JaasLogin(SCRAM_MODULE, {"username": TEXT, "password": "p"})
    elif "tuple" in hint:
        value = (TEXT,)
    with pytest.raises(ConfigError) as caught:
        config(**{definition.field_name: value})
    assert definition.key in caught.value.setting
    assert str(caught.value).isprintable()
    assert TEXT not in str(caught.value)
    if "tuple" in hint:
        # A text in a tuple's place is refused for being one.
        return
    with pytest.raises(ConfigError, match=re.escape(definition.key)):
        load(config, {definition.key: TEXT})


Open = Callable[[], AbstractAsyncContextManager[Any]]


def _open_connection() -> AbstractAsyncContextManager[Any]:
    return open_connection("127.0.0.1", 1, client_id=TEXT)


@pytest.mark.parametrize(
    "opened",
    [
        lambda: open_admin(BOOTSTRAP, client_id=TEXT),
        lambda: open_cluster([("127.0.0.1", 1)], client_id=TEXT),
        _open_connection,
    ],
    ids=["admin", "cluster", "connection"],
)
async def test_a_client_id_is_refused_before_a_connection(opened: Open) -> None:
    with pytest.raises(ValueError, match=r"^client_id is .*, which UTF-8 cannot encode$"):
        async with opened():
            raise AssertionError("opened")


def test_a_client_id_is_refused_by_asyncios_admin() -> None:
    import asyncio

    async def opened() -> None:
        async with aio.open_admin(BOOTSTRAP, client_id=TEXT):
            raise AssertionError("opened")

    with pytest.raises(ValueError, match=r"^client_id is .*, which UTF-8 cannot encode$"):
        asyncio.run(opened())


@pytest.mark.parametrize("config", CONFIGS)
def test_any_other_text_is_taken(config: Any) -> None:
    assert config(sasl_username="\U0001f600 é").sasl_username == "\U0001f600 é"
