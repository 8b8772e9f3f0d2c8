"""`ottla quorum` with a played quorum, in virtual time: add, remove, replace, unregister,
replicas."""

import json
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock

from ottla.cli.cluster.voters import voter_requests
from ottla.cli.cluster.voters.controller_registrations import unregister
from ottla.cli.cluster.voters.voter_replacement import replace as replace_voter
from ottla.cli.cluster.voters.voter_requests import add, remove, replicas
from ottla.client.admin_parts.admin_cluster import QuorumDescription, QuorumReplica
from ottla.client.network.connection import ConnectionLostError
from ottla.insight.changes import voter_changes_driver
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.storage.directories.meta_properties import uuid_to_text

NOW_MS = 1_000_000
OWN, OTHER = "own-cluster", "other-cluster"


@pytest.fixture(autouse=True)
def clusters(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Cluster ids of the controllers that answer, by host; no other controller answers."""
    found: dict[str, str] = {}

    async def ask(address: tuple[str, int]) -> str | None:
        return found.get(address[0])

    monkeypatch.setattr(voter_changes_driver, "cluster_id_at", ask)
    return found


def replica(node: int, *, directory: int = 0, silent_ms: int = 0) -> QuorumReplica:
    return QuorumReplica(
        NodeId(node),
        UUID(int=directory or node),
        Offset(90 if silent_ms else 100),
        NOW_MS - silent_ms,
        NOW_MS - silent_ms,
    )


def described(*voters: QuorumReplica) -> QuorumDescription:
    return QuorumDescription(
        leader=voters[0].node,
        leader_epoch=Epoch(7),
        high_watermark=Offset(100),
        voters=voters,
        observers=(replica(104),),
        addresses={one.node: (f"c{one.node}.example", 9093) for one in voters},
    )


Outcome = Exception | None


@dataclass
class PlayedAdmin:
    """A quorum whose answers to changes are given in advance, and the changes that it makes."""

    quorum: QuorumDescription
    outcomes: list[tuple[Outcome, bool]] = field(default_factory=list)
    """For each request, its error, and whether the change is made."""
    commits_after: int = 0
    """Number of descriptions in which a change is not committed yet."""
    requested: list[tuple[object, ...]] = field(default_factory=list)
    unregistrations: list[Outcome] = field(default_factory=list)
    """Errors of the first requests to unregister a controller."""

    async def ask_quorum(self) -> QuorumDescription:
        return self.quorum

    async def describe_quorum(self) -> QuorumDescription:
        if self.requested and self.commits_after:
            self.commits_after -= 1
            return replace(self.quorum, high_watermark=Offset(99))
        return self.quorum

    async def add_voter(
        self, node: int, directory_id: UUID, listeners: Mapping[str, tuple[str, int]]
    ) -> None:
        self.requested.append((node, directory_id, dict(listeners)))
        new = replica(node)._replace(directory_id=directory_id)
        self._answer(replace(self.quorum, voters=(*self.quorum.voters, new)))

    async def unregister_controller(self, node: int) -> None:
        self.requested.append(("unregister", node))
        if self.unregistrations:
            outcome = self.unregistrations.pop(0)
            if outcome is not None:
                raise outcome

    async def remove_voter(self, node: int, directory_id: UUID) -> None:
        self.requested.append((node, directory_id))
        left = tuple(one for one in self.quorum.voters if one.node != node)
        self._answer(replace(self.quorum, voters=left))

    def _answer(self, changed: QuorumDescription) -> None:
        error, is_made = self.outcomes.pop(0) if self.outcomes else (None, True)
        if is_made:
            self.quorum = changed
        if error is not None:
            raise error


def timed_out(message: str = "A reason.") -> RefusedError:
    return RefusedError(ErrorCode.REQUEST_TIMED_OUT, message)


def admin_of(*outcomes: tuple[Outcome, bool], **changes: Any) -> Any:
    quorum = described(replica(101), replica(102), replica(103))
    return PlayedAdmin(quorum, list(outcomes), **changes)


def options(**given: Any) -> Namespace:
    usual = {
        "yes": True,
        "dry_run": False,
        "timeout": 30.0,
        "format": "json",
        "directory": None,
        "unregister": False,
        "by": None,
        "address": None,
    }
    return Namespace(**{**usual, **given})


def adding(text: str = "", **given: Any) -> Namespace:
    text = text or f"104@c104.example:9093:{uuid_to_text(UUID(int=104))}"
    return options(controller=text, **given)


async def test_a_controller_is_added_by_one_request(capsys: pytest.CaptureFixture[str]) -> None:
    admin = admin_of()
    assert await add(admin, adding()) == 0
    assert admin.requested == [(104, UUID(int=104), {"CONTROLLER": ("c104.example", 9093)})]
    assert json.loads(capsys.readouterr().out) == {
        "id": 104,
        "directory_id": uuid_to_text(UUID(int=104)),
        "added": True,
    }


async def test_a_controller_of_another_cluster_is_refused_at_once(clusters: dict[str, str]) -> None:
    admin = admin_of()
    clusters |= {"c101.example": OWN, "c104.example": OTHER}
    sentence = "c104.example:9093 belongs to cluster other-cluster, and this is cluster own-cluster"
    by = f"104@c104.example:9093:{uuid_to_text(UUID(int=104))}"
    for change in (add(admin, adding()), replace_voter(admin, options(id=103, by=by))):
        with pytest.raises(RefusedError, match=sentence) as refused:
            await change
        assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert admin.requested == []

    clusters["c104.example"] = OWN
    assert await add(admin, adding()) == 0


async def test_a_controller_that_is_a_voter_is_not_added_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = admin_of()
    text = f"103@c103.example:9093:{uuid_to_text(UUID(int=103))}"
    assert await add(admin, adding(text, format="table")) == 0
    assert admin.requested == []
    assert "is a voter already" in capsys.readouterr().out


async def test_an_id_with_another_directory_is_refused_with_the_cure() -> None:
    admin = admin_of()
    text = f"103@c103.example:9093:{uuid_to_text(UUID(int=9))}"
    with pytest.raises(RefusedError, match="'ottla quorum remove 103' comes first") as caught:
        await add(admin, adding(text))
    assert caught.value.code is ErrorCode.DUPLICATE_VOTER
    assert admin.requested == []


@pytest.mark.parametrize("text", ["104", "104@host:9093", "x@h:1:" + "A" * 22, "104@h:99999:AA"])
async def test_a_controller_in_another_form_is_refused(text: str) -> None:
    admin = admin_of()
    with pytest.raises(ConfigError):
        await add(admin, adding(text))
    assert admin.requested == []


@pytest.mark.parametrize(
    "error",
    [
        timed_out(),
        ConnectionLostError("lost"),
        RefusedError(ErrorCode.DUPLICATE_VOTER),
        RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_change_that_was_made_in_spite_of_the_error_is_not_requested_again(
    error: Exception, autojump_clock: MockClock
) -> None:
    admin = admin_of((error, True))
    assert await add(admin, adding()) == 0
    assert len(admin.requested) == 1


async def test_a_change_that_timed_out_without_effect_is_requested_again(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = admin_of((timed_out("It is behind."), False), (timed_out("It is behind."), False))
    assert await add(admin, adding()) == 0
    assert len(admin.requested) == 3
    assert capsys.readouterr().err.count("It is behind; trying again") == 1


async def test_a_change_in_the_log_is_waited_for_until_it_is_committed(
    autojump_clock: MockClock,
) -> None:
    admin = admin_of((timed_out(), True), commits_after=3)
    assert await remove(admin, options(id=103)) == 0
    assert len(admin.requested) == 1
    assert admin.commits_after == 0


async def test_a_change_that_is_never_committed_is_reported(autojump_clock: MockClock) -> None:
    admin = admin_of((timed_out(), True), commits_after=1_000)
    with pytest.raises(RefusedError, match="has not acknowledged it"):
        await remove(admin, options(id=103))
    assert len(admin.requested) == 1


async def test_the_last_reason_is_raised_when_the_time_is_over(autojump_clock: MockClock) -> None:
    admin = admin_of(*[(timed_out("It is behind."), False)] * 20)
    with pytest.raises(RefusedError, match="It is behind"):
        await add(admin, adding(timeout=3.0))
    assert 2 < len(admin.requested) < 20


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_REQUEST, ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
)
async def test_a_final_refusal_is_raised_at_once(code: ErrorCode) -> None:
    admin = admin_of((RefusedError(code, "No."), False))
    with pytest.raises(RefusedError, match="No"):
        await add(admin, adding())
    assert len(admin.requested) == 1


async def test_fixed_voters_are_refused_with_the_command_that_names_the_cure() -> None:
    admin = admin_of((RefusedError(ErrorCode.UNSUPPORTED_VERSION, "Fixed."), False))
    with pytest.raises(RefusedError, match="Fixed; 'ottla cluster upgrade status' names the"):
        await add(admin, adding())
    assert len(admin.requested) == 1


async def test_the_directory_of_a_removed_voter_is_looked_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = admin_of()
    assert await remove(admin, options(id=102)) == 0
    assert admin.requested == [(102, UUID(int=102))]
    assert json.loads(capsys.readouterr().out)["removed"] is True


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"id": 9}, "the voters are 101, 102, 103"),
        ({"id": 104}, "is no voter"),
        ({"id": 102, "directory": uuid_to_text(UUID(int=9))}, "is a voter with directory"),
    ],
)
async def test_an_unknown_voter_is_refused(given: dict[str, Any], said: str) -> None:
    admin = admin_of()
    with pytest.raises(RefusedError, match=said) as caught:
        await remove(admin, options(**given))
    assert caught.value.code is ErrorCode.VOTER_NOT_FOUND
    assert admin.requested == []


async def test_the_last_voter_stays() -> None:
    admin: Any = PlayedAdmin(described(replica(101)))
    with pytest.raises(RefusedError, match="is the last voter"):
        await remove(admin, options(id=101))
    assert admin.requested == []


async def test_a_voter_that_the_majority_needs_stays() -> None:
    silent = replica(103, silent_ms=60_000)
    admin: Any = PlayedAdmin(described(replica(101), replica(102), silent))
    with pytest.raises(RefusedError, match="103 does not fetch"):
        await remove(admin, options(id=102))
    assert admin.requested == []
    assert await remove(admin, options(id=103)) == 0


@pytest.mark.parametrize(
    "plan",
    [
        lambda admin: add(admin, adding(yes=False, dry_run=True)),
        lambda admin: remove(admin, options(id=103, yes=False, dry_run=True)),
        lambda admin: unregister(admin, options(id=104, yes=False, dry_run=True)),
    ],
)
async def test_a_dry_run_shows_the_change_and_makes_none(
    plan: Callable[[Any], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    admin = admin_of()
    assert await plan(admin) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert row["change"] in ("add", "remove", "unregister")
    assert row["id"] in (103, 104)
    assert admin.requested == []


async def test_the_lag_is_noted_while_an_addition_waits(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = admin_of(*[(timed_out("It is behind."), False)] * 12)
    behind = replica(104)._replace(end_offset=Offset(40))
    admin.quorum = replace(admin.quorum, observers=(behind,))
    assert await add(admin, adding()) == 0
    assert capsys.readouterr().err.count("controller 104 is 60 records behind the leader") == 1


async def test_another_directory_than_the_given_one_is_noted(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = admin_of(*[(timed_out("It is behind."), False)] * 12)
    admin.quorum = replace(admin.quorum, observers=(replica(104, directory=9),))
    assert await add(admin, adding()) == 0
    wrong, given = uuid_to_text(UUID(int=9)), uuid_to_text(UUID(int=104))
    noted = f"the leader knows node 104 with directory {wrong}, not {given}"
    assert capsys.readouterr().err.count(noted) == 1


async def test_a_removed_voter_is_unregistered_once_it_leads_no_longer(
    autojump_clock: MockClock,
) -> None:
    still_active = RefusedError(ErrorCode.INVALID_REQUEST, "It is active.")
    admin = admin_of(unregistrations=[still_active, timed_out(), still_active])
    assert await remove(admin, options(id=101, unregister=True)) == 0
    assert admin.requested == [(101, UUID(int=101)), *[("unregister", 101)] * 4]


async def test_a_lost_directory_is_removed_before_the_new_one_is_added(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = admin_of()
    lost = replica(103, silent_ms=60_000)
    admin.quorum = replace(
        admin.quorum,
        voters=(*admin.quorum.voters[:2], lost),
        observers=(replica(103, directory=9), replica(103, directory=8, silent_ms=60_000)),
    )
    assert await replace_voter(admin, options(id=103)) == 0
    address = {"CONTROLLER": ("c103.example", 9093)}
    assert admin.requested == [(103, UUID(int=103)), (103, UUID(int=9), address)]
    assert json.loads(capsys.readouterr().out)["directory_id"] == uuid_to_text(UUID(int=9))


async def test_another_controller_is_added_before_the_old_one_is_removed() -> None:
    admin = admin_of()
    by = f"104@c104.example:9093:{uuid_to_text(UUID(int=104))}"
    assert await replace_voter(admin, options(id=102, by=by, unregister=True)) == 0
    assert [one[0] for one in admin.requested] == [104, 102, "unregister"]


async def test_a_replacement_that_was_interrupted_goes_on_with_the_steps_that_are_left() -> None:
    admin = admin_of()
    by = f"103@c103.example:9093:{uuid_to_text(UUID(int=103))}"
    assert await replace_voter(admin, options(id=102, by=by)) == 0
    assert admin.requested == [(102, UUID(int=102))]

    left = replace(
        admin.quorum,
        voters=(replica(101), replica(103)),
        observers=(replica(102, directory=9),),
    )
    admin = admin_of()
    admin.quorum = left
    assert await replace_voter(admin, options(id=102, address="c102.example:9093")) == 0
    assert admin.requested == [(102, UUID(int=9), {"CONTROLLER": ("c102.example", 9093)})]


@pytest.mark.parametrize(
    ("silent_ms", "observers", "said"),
    [
        (0, (), "is a voter that works"),
        (60_000, (), "0 controllers with id 103 and a new directory"),
        (60_000, (replica(103, directory=8), replica(103, directory=9)), "2 controllers"),
    ],
)
async def test_a_replacement_without_one_new_directory_is_refused(
    silent_ms: int, observers: tuple[QuorumReplica, ...], said: str
) -> None:
    admin = admin_of()
    admin.quorum = replace(
        admin.quorum,
        voters=(*admin.quorum.voters[:2], replica(103, silent_ms=silent_ms)),
        observers=observers,
    )
    with pytest.raises(RefusedError, match=said):
        await replace_voter(admin, options(id=103))
    assert admin.requested == []


async def test_a_replacement_of_a_controller_that_is_no_voter_adds_none() -> None:
    admin = admin_of()
    by = f"104@c104.example:9093:{uuid_to_text(UUID(int=104))}"
    with pytest.raises(
        RefusedError, match="controller 109 is no voter; the voters are 101"
    ) as refusal:
        await replace_voter(admin, options(id=109, by=by))
    assert refusal.value.code == ErrorCode.VOTER_NOT_FOUND
    assert admin.requested == []


async def test_a_replacement_that_would_leave_no_majority_is_refused() -> None:
    admin = admin_of()
    admin.quorum = replace(
        admin.quorum,
        voters=(replica(101), replica(102, silent_ms=60_000), replica(103, silent_ms=60_000)),
        observers=(replica(103, directory=9),),
    )
    with pytest.raises(RefusedError, match="there is no majority"):
        await replace_voter(admin, options(id=103))
    assert admin.requested == []


async def test_a_controller_is_unregistered(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = admin_of(unregistrations=[ConnectionLostError("lost")])
    gone = RefusedError(ErrorCode.CONTROLLER_ID_NOT_REGISTERED, "Not registered")
    admin.unregistrations.append(gone)
    assert await unregister(admin, options(id=105)) == 0
    assert admin.requested == [("unregister", 105)] * 2
    assert json.loads(capsys.readouterr().out) == {"id": 105, "unregistered": True}

    admin = admin_of(unregistrations=[gone])
    with pytest.raises(RefusedError, match="Not registered"):
        await unregister(admin, options(id=105))
    with pytest.raises(RefusedError, match="'ottla quorum remove 101 --unregister'"):
        await unregister(admin, options(id=101))


async def test_a_running_controller_is_unregistered_with_a_warning(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = admin_of()
    assert await unregister(admin, options(id=104)) == 0
    assert "it registers again unless it is stopped" in capsys.readouterr().err


class AdminOfStoppedController(PlayedAdmin):
    """A quorum in which controller 104 has just fetched for the last time."""

    async def ask_quorum(self) -> QuorumDescription:
        silent_ms = 300 + int(trio.current_time() * 1_000)
        return replace(self.quorum, observers=(replica(104, silent_ms=silent_ms),))


async def test_a_controller_that_has_just_stopped_is_unregistered_without_a_warning(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    admin: Any = AdminOfStoppedController(described(replica(101), replica(102)))
    assert await unregister(admin, options(id=104)) == 0
    assert capsys.readouterr().err == ""


async def test_replicas_are_listed_with_role_lag_and_directory(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin: Any = PlayedAdmin(described(replica(101), replica(102, silent_ms=60_000)))
    assert await replicas(admin, options()) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["id"], row["role"], row["lag"]) for row in rows] == [
        (101, "leader", 0),
        (102, "voter", 10),
        (104, "observer", 0),
    ]
    assert rows[1]["last_caught_up_ms_ago"] == 60_000
    assert rows[1]["address"] == "c102.example:9093"
    assert rows[1]["directory_id"] == uuid_to_text(UUID(int=102))
    assert await replicas(admin, options(format="table")) == 0
    assert "observer" in capsys.readouterr().out


async def test_a_quorum_without_leader_has_no_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    admin = admin_of()

    async def refuse() -> QuorumDescription:
        raise RefusedError(ErrorCode.NOT_CONTROLLER, "no leader")

    admin.ask_quorum = refuse
    assert await replicas(admin, options()) == voter_requests.UNKNOWN_STATE
    assert "no leader" in capsys.readouterr().err
    with pytest.raises(RefusedError, match="no leader"):
        await add(admin, adding())
