"""`ottla status --watch`: a cluster that is away is shown as away, and looked for again."""

from typing import Any

import pytest
import trio

from ottla.cli.cluster import status
from ottla.cli.main import run
from ottla.client.network.connection import ConnectionLostError


async def test_a_cluster_that_went_away_is_looked_for_again(
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(status, "shown", lambda found: found["said"])
    looks = 0

    async def look() -> dict[str, Any]:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise ConnectionLostError("localhost:9092 hung up")
        return {"said": f"look {looks}"}

    with trio.move_on_after(3 * status.WATCH_S - 1):
        await status._watch(look)

    pages = capsys.readouterr().out.split("\033[H\033[2J")
    assert pages[1:] == ["look 1\n", "unreachable: localhost:9092 hung up\n", "look 3\n"]


def test_machines_are_refused_what_clears_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--watch", "--format=json"]) == 1

    assert "--watch: shows a table only" in capsys.readouterr().err
