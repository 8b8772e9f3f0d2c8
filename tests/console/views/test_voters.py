"""Changes of the quorum's voters by a page: the steps before, the change, and refusals."""

from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.client.admin_parts.admin_cluster import QuorumDescription, QuorumReplica
from ottla.insight.changes import voter_changes_driver
from ottla.model.ids import Epoch, NodeId, Offset, uuid_text
from tests.console.console_fixture import FakeAdmin, open_browser

NOW_MS = 1_000_000
SILENT_MS = 60_000
NEW = f"104@c104.example:9093:{uuid_text(UUID(int=104))}"


@pytest.fixture(autouse=True)
def clusters(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Cluster ids of the controllers that answer, by host; no other controller answers."""
    found: dict[str, str] = {}

    async def ask(address: tuple[str, int]) -> str | None:
        return found.get(address[0])

    monkeypatch.setattr(voter_changes_driver, "cluster_id_at", ask)
    return found


def replica(node: int, *, directory: int = 0, silent_ms: int = 0) -> QuorumReplica:
    last_ms = NOW_MS - silent_ms
    return QuorumReplica(NodeId(node), UUID(int=directory or node), Offset(100), last_ms, last_ms)


class PlayedQuorum:
    """Voters that a fake admin client describes and changes."""

    def __init__(self, *voters: QuorumReplica) -> None:
        self.described = QuorumDescription(
            leader=NodeId(101),
            leader_epoch=Epoch(7),
            high_watermark=Offset(100),
            voters=voters or (replica(101), replica(102), replica(103)),
            observers=(replica(104, silent_ms=SILENT_MS),),
            addresses={NodeId(101): ("c101.example", 9093)},
        )
        self.requests: list[tuple[Any, ...]] = []

    async def describe(self) -> QuorumDescription:
        return self.described

    async def add(
        self, node: int, directory: UUID, listeners: Mapping[str, tuple[str, int]]
    ) -> None:
        self.requests.append(("add", node, dict(listeners)))
        new = replica(node)._replace(directory_id=directory)
        self.described = replace(self.described, voters=(*self.described.voters, new))

    async def remove(self, node: int, directory: UUID) -> None:
        self.requests.append(("remove", node, directory))
        left = tuple(one for one in self.described.voters if one.node != node)
        self.described = replace(self.described, voters=left)

    async def unregister(self, node: int) -> None:
        self.requests.append(("unregister", node))

    @property
    def admin(self) -> FakeAdmin:
        return FakeAdmin(
            ask_quorum=self.describe,
            describe_quorum=self.describe,
            add_voter=self.add,
            remove_voter=self.remove,
            unregister_controller=self.unregister,
        )


async def made(quorum: PlayedQuorum, where: str, form: Mapping[str, str]) -> str:
    """Make a change of the voters by its form. Returns the HTML of the long action's page."""
    async with open_browser(quorum.admin) as browser:
        response = await browser.post(where, form)
        assert response.status_code == HTTPStatus.SEE_OTHER, response.text[-2_000:]
        with trio.fail_after(60):
            while "running</span>" in (html := await browser.get(response.headers["location"])):
                await trio.lowlevel.checkpoint()
    return html


async def test_a_controller_is_added_after_its_steps_were_shown() -> None:
    quorum = PlayedQuorum()
    async with open_browser(quorum.admin) as browser:
        html = await browser.get(f"/quorum/voters?change=add&controller={NEW}")
    assert "Steps (dry run)" in html
    assert f"ottla quorum add {NEW} --dry-run" in html
    assert quorum.requests == []
    html = await made(quorum, "/quorum/voters/add", {"controller": NEW})
    assert "controller 104 is a voter now" in html
    assert quorum.requests == [("add", 104, {"CONTROLLER": ("c104.example", 9093)})]


async def test_a_removed_controller_is_unregistered() -> None:
    quorum = PlayedQuorum()
    form = {"confirm": "102", "unregister": "yes"}
    html = await made(quorum, "/quorum/voters/102/remove", form)
    assert "controller 102 is no voter any longer" in html
    assert quorum.requests == [("remove", 102, UUID(int=102)), ("unregister", 102)]


async def test_another_controller_is_added_before_the_old_one_is_removed() -> None:
    quorum = PlayedQuorum()
    form = {"confirm": "102", "controller": NEW}
    html = await made(quorum, "/quorum/voters/102/replace", form)
    assert "controller 104 is added" in html
    assert [one[:2] for one in quorum.requests] == [("add", 104), ("remove", 102)]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("change=add&controller=104", "must be ID@HOST:PORT:DIRECTORY"),
        ("change=remove&node=9", "controller 9 is no voter; the voters are 101, 102, 103"),
        ("change=remove&node=x", "must be a node id"),
        ("change=replace&node=102", "is a voter that works"),
        ("change=other", "must be add, remove or replace"),
        (
            f"change=replace&node=109&controller={NEW}",
            "controller 109 is no voter; the voters are 101",
        ),
    ],
)
async def test_a_change_that_is_refused_names_the_reason(query: str, said: str) -> None:
    quorum = PlayedQuorum()
    async with open_browser(quorum.admin) as browser:
        html = await browser.get(f"/quorum/voters?{query}")
    assert said in html
    assert "Make this change" not in html


async def test_a_controller_of_another_cluster_is_refused(clusters: dict[str, str]) -> None:
    clusters |= {"c101.example": "own", "c104.example": "other"}
    quorum = PlayedQuorum()
    async with open_browser(quorum.admin) as browser:
        assert "Make this change" in await browser.get(
            f"/quorum/voters?change=add&controller={NEW}"
        )
        response = await browser.post("/quorum/voters/add", {"controller": NEW})
    assert "belongs to cluster other, and this is cluster own" in response.text
    assert quorum.requests == []


async def test_a_voter_that_the_majority_needs_stays() -> None:
    quorum = PlayedQuorum(replica(101), replica(102), replica(103, silent_ms=SILENT_MS))
    async with open_browser(quorum.admin) as browser:
        response = await browser.post("/quorum/voters/102/remove", {"confirm": "102"})
        assert response.status_code == HTTPStatus.CONFLICT
        assert "103 does not fetch" in response.text
        unconfirmed = await browser.post("/quorum/voters/103/remove", {"confirm": "102"})
        assert unconfirmed.status_code == HTTPStatus.BAD_REQUEST
    assert quorum.requests == []


async def test_a_voter_is_not_unregistered_and_an_absent_controller_is() -> None:
    quorum = PlayedQuorum()
    async with open_browser(quorum.admin) as browser:
        refused = await browser.post("/quorum/unregister", {"node": "102"})
        assert refused.status_code == HTTPStatus.CONFLICT
        html = await browser.act("/quorum/unregister", {"node": "104"})
        assert "registration of controller 104 is deleted" in html
    assert quorum.requests == [("unregister", 104)]
