"""A broker that cannot start logs one line with the problem and its cure."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from ottla.broker.broker_driver import Broker
from ottla.broker.opening_driver import open_broker, run_broker
from ottla.controller.main_driver import serve_controller
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.settings.broker import BrokerConfig, load_broker_config
from ottla.model.settings.controller import load_controller_config
from ottla.node.local.local_nodes_driver import free_port

TIMEOUT_SECONDS = 60


@asynccontextmanager
async def open_controller(directory: Path, node_id: int = 101) -> AsyncIterator[str]:
    """Run a controller and yield its `controller.quorum.voters`."""
    port = free_port()
    voters = f"{node_id}@127.0.0.1:{port}"
    config, _ = load_controller_config(
        {
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "metadata.log.dir": str(directory),
        }
    )
    is_stopping, is_ready = trio.Event(), trio.Event()

    async def run() -> None:
        await serve_controller(config, ready=is_ready.set, is_stopping=is_stopping)

    with trio.fail_after(TIMEOUT_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await is_ready.wait()
            yield voters
            is_stopping.set()


def settings(directory: Path, voters: str, **changes: str) -> BrokerConfig:
    config, _ = load_broker_config(
        {
            "node.id": "1",
            "controller.quorum.voters": voters,
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(directory),
            **changes,
        }
    )
    return config


@asynccontextmanager
async def open_first(directory: Path, voters: str) -> AsyncIterator[Broker]:
    async with open_broker(settings(directory, voters)) as broker:
        await broker.is_ready.wait()
        yield broker
        await broker.leave()


async def run(config: BrokerConfig) -> None:
    def ready() -> None:
        raise AssertionError("it must not start")

    await run_broker(config, ready=ready)


async def test_a_directory_in_use_is_named(tmp_path: Path) -> None:
    async with open_controller(tmp_path / "c") as voters, open_first(tmp_path / "b", voters):
        with pytest.raises(ConfigError, match=r"log\.dirs: .*/b is in use by another process"):
            await run(settings(tmp_path / "b", voters))


async def test_a_second_name_of_a_directory_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "b")
    async with open_controller(tmp_path / "c") as voters:
        config = settings(tmp_path / "b", voters)
        directories = (str(tmp_path / "b"), str(tmp_path / "link"))
        with pytest.raises(ConfigError, match=r"log\.dirs: .*/link is the same directory as .*/b;"):
            await run(replace(config, log_dirs=directories))


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    async with (
        open_controller(tmp_path / "c") as voters,
        open_first(tmp_path / "b", voters) as first,
    ):
        port = first.addresses["PLAINTEXT"][1]
        config = settings(
            tmp_path / "other",
            voters,
            **{"node.id": "2", "listeners": f"PLAINTEXT://127.0.0.1:{port}"},
        )
        said = rf"{port} cannot be opened \(address already in use\)"
        with pytest.raises(ConfigError, match=said):
            await run(config)


async def test_a_second_broker_of_the_same_id_is_refused(tmp_path: Path) -> None:
    async with open_controller(tmp_path / "c") as voters, open_first(tmp_path / "b", voters):
        config = settings(
            tmp_path / "other", voters, **{"initial.broker.registration.timeout.ms": "300"}
        )
        with pytest.raises(RefusedError, match="another broker 1 is registered") as refused:
            await run(config)
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


async def test_a_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    async with open_controller(tmp_path / "c") as voters, open_first(tmp_path / "b", voters):
        pass
    async with open_controller(tmp_path / "c2", node_id=102) as others:
        with pytest.raises(ConfigError, match=r"log\.dirs: .*/b belongs to cluster .{22}, but"):
            await run(settings(tmp_path / "b", others))


async def test_a_directory_of_another_broker_is_refused(tmp_path: Path) -> None:
    async with open_controller(tmp_path / "c") as voters:
        async with open_first(tmp_path / "b", voters):
            pass
        with pytest.raises(ConfigError, match=r"node\.id: is 7, but .*/b belongs to node 1"):
            await run(settings(tmp_path / "b", voters, **{"node.id": "7"}))


async def test_without_controllers_it_gives_up_and_says_so(tmp_path: Path) -> None:
    config = settings(
        tmp_path,
        f"101@127.0.0.1:{free_port()}",
        **{"initial.broker.registration.timeout.ms": "300"},
    )
    with pytest.raises(ConfigError, match=r"no controller answers: .* start one"):
        await run(config)


async def test_a_path_that_is_no_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with open_controller(tmp_path / "c") as voters:
        with pytest.raises(ConfigError, match=r"log\.dirs: no directory can be used"):
            await run(settings(tmp_path / "file" / "b", voters))
