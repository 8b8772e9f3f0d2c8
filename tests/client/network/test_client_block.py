"""The blocks of clients: errors for a forgotten `async with`, warnings for a block without end."""

import asyncio
import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import ottla.client
from ottla.client import aio

ADDRESS = "localhost:1"
OPENERS = [
    (module, name)
    for module in (ottla.client, aio)
    for name in ("open_producer", "open_consumer", "open_admin")
]


@pytest.mark.parametrize(("module", "name"), OPENERS)
def test_a_client_used_without_its_block_says_to_write_async_with(module: Any, name: str) -> None:
    client = getattr(module, name)(ADDRESS)
    kind = name.removeprefix("open_")
    cure = f"write `async with {name}(…) as {kind}:`"

    with pytest.raises(AttributeError) as missing:
        client.send("topic", b"value")
    assert str(missing.value) == f"{name}(…) has no 'send' before its block; {cure}"
    assert not hasattr(client, "poll"), "hasattr still works"
    assert not hasattr(client, "__len__")


@pytest.mark.parametrize(("module", "name"), OPENERS)
def test_a_setting_given_as_an_argument_says_where_it_belongs(module: Any, name: str) -> None:
    config = f"{name.removeprefix('open_').capitalize()}Config"

    with pytest.raises(TypeError) as caught:
        getattr(module, name)(ADDRESS, group_id="billing")
    assert str(caught.value).endswith(
        "got an unexpected keyword argument 'group_id'; settings are given as "
        f"config={config}.from_kafka({{'group.id': …}})"
    )
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'bootstrap'$"):
        getattr(module, name)()


@pytest.mark.parametrize(("module", "name"), OPENERS)
def test_addresses_given_by_the_name_of_other_clients_say_that_they_come_first(
    module: Any, name: str
) -> None:
    with pytest.raises(TypeError) as caught:
        getattr(module, name)(bootstrap_servers=ADDRESS)
    assert str(caught.value).endswith(f"; give the addresses first: {name}('localhost:9092')")


async def awaited(client: Any) -> None:
    await client


async def iterated(client: Any) -> None:
    async for _ in client:
        pass


async def entered(client: Any) -> None:
    with client:
        pass


@pytest.mark.parametrize("use", [awaited, iterated, entered])
def test_other_uses_of_a_block_say_to_write_async_with(use: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"write `async with open_consumer\(…\) as consumer:`"):
        use(aio.open_consumer(ADDRESS)).send(None)


def test_a_block_that_was_never_left_is_reported_with_what_to_do() -> None:
    async def forget() -> None:
        block = aio.open_producer(ADDRESS)
        await block.__aenter__()
        del block
        gc.collect()

    with pytest.warns(ResourceWarning) as warned:
        asyncio.run(forget())
    (message,) = {str(one.message) for one in warned}
    assert message == (
        "a client of open_producer was never closed, so that buffered records may be lost; write "
        "`async with open_producer(…) as producer:`, or close it by an AsyncExitStack"
    )


def test_a_block_that_is_left_or_never_entered_is_not_reported() -> None:
    async def leave() -> None:
        async with aio.open_producer(ADDRESS):
            pass
        aio.open_producer(ADDRESS)
        with pytest.raises(ValueError, match="no address"):
            async with aio.open_producer("://"):
                pass
        gc.collect()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(leave())
