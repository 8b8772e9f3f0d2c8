"""Commands that ask controllers, without any broker."""

from functools import partial
from pathlib import Path

import pytest
import trio

from ottla.cli.main import run
from ottla.client.network.active_controller import active_controller
from ottla.client.network.connection import ConnectionLostError
from ottla.node.local.local_nodes_driver import free_port
from tests.controller.kafka.test_kafka_service import admin_of, config_of


async def test_the_active_controller_is_found_by_any_address_that_answers(tmp_path: Path) -> None:
    port = free_port()
    async with admin_of(config_of(tmp_path, port)):
        addresses = [("127.0.0.1", free_port()), ("127.0.0.1", port)]
        assert await active_controller(addresses) == ("127.0.0.1", port)
        with pytest.raises(ConnectionLostError):
            await active_controller(addresses[:1])


async def test_the_quorum_is_shown_while_no_broker_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    async with admin_of(config_of(tmp_path, port)):
        words = ["quorum", "status", "--bootstrap-controller", f"127.0.0.1:{port}"]
        assert await trio.to_thread.run_sync(partial(run, words)) == 0
        assert "leader 101" in capsys.readouterr().out
        words[-1] = "nowhere"
        assert await trio.to_thread.run_sync(partial(run, words)) == 1
        assert "--bootstrap-controller: is 'nowhere'" in capsys.readouterr().err
