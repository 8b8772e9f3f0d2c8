"""What a search engine is, what a run of it tells, and the table of all of them.

An engine runs one seed at a time: it makes everything again, draws every choice from the chance it
is handed, and comes back with an `RunOutcome`; a broken invariant is part of it, never raised.
"""

from importlib import import_module
from typing import NamedTuple, Protocol

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.rare import Rare
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import Violation, violation_of
from ottla.model.errors import ErrorCode, RefusedError


class RunOutcome(NamedTuple):
    """What one run did and found."""

    engine: str
    subject: str
    seed: int
    event_count: int
    sim_ms: int
    """Virtual milliseconds that passed; 0 in an engine without a clock."""
    figures: dict[str, int]
    """What the run counts: sums over runs make sense.  What every engine may count has one name,
    those of `COMMON_FIGURES`."""
    rare: dict[str, int]
    trace_hash: str
    violation: Violation | None
    decisions: tuple[int, ...]
    """Of the main stream of chance; with the seed, all it takes to see the run again."""


COMMON_FIGURES = ("crashes", "power cuts", "elections", "ISR changes", "commits")
"""Processes that ended alone; machines that lost power, their process counted with them; leaders
that took office; in-sync sets that changed (walks count what the controller was asked and decided);
records, entries or offsets that were committed."""


class Engine(Protocol):
    """One way of searching one subject."""

    name: str
    """`walk` or `whole`."""
    subject: str
    budget: int
    """Events of a run unless told otherwise."""
    required: tuple[str, ...]
    """Rare states that a long run must reach."""

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Run once, for at most `budget` events."""
        ...


class Named(Protocol):
    """Which engine it was, on what."""

    name: str
    subject: str


class WalkCourse(Protocol):
    """What a walk leaves behind, however it ended."""

    trace: Trace
    rare: Rare
    figures: dict[str, int]


def outcome_of(
    engine: Named,
    chance: Chance,
    course: WalkCourse,
    violation: Violation | None,
    *,
    sim_ms: int = 0,
) -> RunOutcome:
    """Return what a walk did and found."""
    return RunOutcome(
        engine.name,
        engine.subject,
        chance.seed,
        course.trace.event_count,
        sim_ms,
        course.figures,
        course.rare.counts,
        course.trace.hash,
        violation,
        tuple(chance.decisions),
    )


def run_once(engine: Engine, chance: Chance, *, budget: int) -> RunOutcome:
    """Run once; what breaks before the engine's own `try`, or in it, is a violation as well."""
    try:
        return engine.run(chance, budget=budget)
    except Exception as error:
        return RunOutcome(
            engine.name,
            engine.subject,
            chance.seed,
            0,
            0,
            {},
            {},
            Trace().hash,
            violation_of(error),
            tuple(chance.decisions),
        )


ENGINES: dict[str, dict[str, str]] = {
    "walk": {
        "raft": "ottla.jepsen.world.walk.raft_walk:RaftWalk",
        "raft-forged": "ottla.jepsen.world.walk.raft_walk:ForgedRaftWalk",
        "raft-disk": "ottla.jepsen.world.walk.raft_disk:DiskRaftWalk",
        "raft-damaged": "ottla.jepsen.world.walk.raft_disk:DamagedRaftWalk",
        "replication": "ottla.jepsen.world.walk.replication_walk:ReplicationWalk",
        "replication-forged": (
            "ottla.jepsen.world.walk.replication_forgeries:ForgedReplicationWalk"
        ),
        "replication-losses": "ottla.jepsen.world.walk.replication_losses:LossReplicationWalk",
        "controller": "ottla.jepsen.world.walk.controller_walk:ControllerWalk",
        "log": "ottla.jepsen.world.walk.log_walk:LogWalk",
        "log-failing": "ottla.jepsen.world.walk.log_walk:FailingLogWalk",
        "group": "ottla.jepsen.world.walk.group_walk:GroupWalk",
    },
    "whole": {
        "cluster": "ottla.jepsen.world.whole.whole_cluster:WholeCluster",
        "names": "ottla.jepsen.world.whole.whole_cluster:NamesOfCluster",
        "losses": "ottla.jepsen.world.whole.whole_cluster:LossesOfCluster",
        "moves": "ottla.jepsen.world.whole.whole_cluster:MovesOfCluster",
        "disks": "ottla.jepsen.world.whole.whole_cluster:DisksOfCluster",
        "damaged-quorum": "ottla.jepsen.world.whole.whole_cluster:DamagedQuorumOfCluster",
        "compaction": "ottla.jepsen.world.whole.compaction:CompactionOfLogs",
        "compacted": "ottla.jepsen.world.whole.whole_cluster:CompactedLogsOfCluster",
        "encrypted": "ottla.jepsen.world.whole.whole_cluster:EncryptedCluster",
        "acls": "ottla.jepsen.world.whole.acls:AclsOfCluster",
        "throttled": "ottla.jepsen.world.whole.throttles:ThrottledCluster",
        "transactions": "ottla.jepsen.world.whole.transactions:TransactionsOfCluster",
        "transactions-coordinators": (
            "ottla.jepsen.world.whole.transactions:CoordinatorsOfCluster"
        ),
        "transactions-compacted": (
            "ottla.jepsen.world.whole.transactions:CompactedTransactionsOfCluster"
        ),
    },
}
"""By engine and subject: where its class lies.  The first subject is the one meant by default."""

SENTENCES = {
    "walk": "no clock: any timer may fire, any message may be next, crashes everywhere",
    "whole": "whole controllers, brokers and clients in virtual time",
}


def subjects_of(name: str) -> tuple[str, ...]:
    """Return what an engine can be run on; RefusedError when there is no such engine."""
    if name not in ENGINES:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"there is no engine {name!r}")
    return tuple(ENGINES[name])


def make_engine(name: str, subject: str | None = None) -> Engine:
    """Return a fresh engine; RefusedError when there is none for the subject."""
    known = subjects_of(name)
    if not known:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"engine {name} has no subject yet")
    chosen = known[0] if subject is None else subject
    if chosen not in known:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"engine {name} knows {', '.join(known)}; not {chosen!r}",
        )
    module, _, attribute = ENGINES[name][chosen].partition(":")
    engine: Engine = getattr(import_module(module), attribute)()
    assert (engine.name, engine.subject) == (name, chosen)
    return engine
