"""Interface of a search engine, outcome of a run, and table of the engines.

An engine runs one seed at a time. It builds all objects again for each run, and draws every choice
from the run's `Chance`, which records random choices. It returns a `RunOutcome`. A broken invariant
is part of the outcome, and is never raised.
"""

from importlib import import_module
from typing import NamedTuple, Protocol

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import Violation, violation_of
from ottla.model.errors import ErrorCode, RefusedError


class RunOutcome(NamedTuple):
    """Outcome of one run of a search engine: its events, counts and violation."""

    engine: str
    subject: str
    seed: int
    event_count: int
    sim_ms: int
    """Virtual time in ms that one run of a search engine took. 0 in an engine without a clock."""
    figures: dict[str, int]
    """Counts of events in one run, by name. They can be added up over several runs. Counts common
    to all engines have the names in `COMMON_FIGURES`."""
    rare: dict[str, int]
    trace_hash: str
    violation: Violation | None
    decisions: tuple[int, ...]
    """Random choices drawn from the main stream of the run's `Chance`. Together with the seed they
    determine the run."""


COMMON_FIGURES = ("crashes", "power cuts", "elections", "ISR changes", "commits")
"""Names of the counts that all engines report:

- crashes: processes that were killed without a power cut;
- power cuts: machines that lost power;
- elections: leaders elected;
- ISR changes: in-sync sets changed (random walks count requests to the controller and its
  decisions);
- commits: records, entries or offsets committed.
"""


class Engine(Protocol):
    """A search engine, which searches for bugs in one subject (a part of Ottla) by one method."""

    name: str
    """Name of the engine's search method: `walk` or `whole`."""
    subject: str
    budget: int
    """Default maximum number of events in one run of the engine."""
    required: tuple[str, ...]
    """Names of the rare states (counted by `RareStates`) that a long run must reach."""

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Do one run of the search, for at most `budget` events, with all random choices drawn from
        `chance`. Returns the outcome."""
        ...


class EngineIdentity(Protocol):
    """The name of a search engine and the subject that it tests, for the outcomes of its runs."""

    name: str
    subject: str


class WalkRecord(Protocol):
    """Record of one random walk (a run of randomly chosen events): its events, rare states and
    counts. It is complete even if an invariant was broken."""

    trace: Trace
    rare: RareStates
    figures: dict[str, int]


def outcome_of(
    engine: EngineIdentity,
    chance: Chance,
    record: WalkRecord,
    violation: Violation | None,
    *,
    sim_ms: int = 0,
) -> RunOutcome:
    """Return the outcome of a random walk, built from its record and its violation. `sim_ms` is the
    virtual time in ms that the walk took."""
    return RunOutcome(
        engine.name,
        engine.subject,
        chance.seed,
        record.trace.event_count,
        sim_ms,
        record.figures,
        record.rare.counts,
        record.trace.hash,
        violation,
        tuple(chance.decisions),
    )


def run_once(engine: Engine, chance: Chance, *, budget: int) -> RunOutcome:
    """Run the search engine once, for at most `budget` events, and return the outcome. An exception
    that the engine does not handle itself is also returned as a violation."""
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
        "raft-membership": "ottla.jepsen.world.walk.raft_membership:MembershipRaftWalk",
        "raft-recovery": "ottla.jepsen.world.walk.raft_recovery:RecoveringRaftWalk",
        "raft-disk": "ottla.jepsen.world.walk.raft_disk:DiskRaftWalk",
        "raft-damaged": "ottla.jepsen.world.walk.raft_disk:DamagedRaftWalk",
        "replication": "ottla.jepsen.world.walk.replication.replication_walk:ReplicationWalk",
        "replication-forged": (
            "ottla.jepsen.world.walk.replication.replication_forgeries:ForgedReplicationWalk"
        ),
        "replication-losses": (
            "ottla.jepsen.world.walk.replication.replication_losses:LossReplicationWalk"
        ),
        "features": "ottla.jepsen.world.walk.feature_walk:FeatureWalk",
        "controller": "ottla.jepsen.world.walk.controller_walk:ControllerWalk",
        "log": "ottla.jepsen.world.walk.log_walk:LogWalk",
        "log-failing": "ottla.jepsen.world.walk.log_walk:FailingLogWalk",
        "log-sequences": "ottla.jepsen.world.walk.log_sequences:SequencesLogWalk",
        "group": "ottla.jepsen.world.walk.group_walk:GroupWalk",
        "shares": "ottla.jepsen.world.walk.shares.share_walk:ShareWalk",
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
        "controller-clients": (
            "ottla.jepsen.world.whole.controller_clients:ControllerClientsOfCluster"
        ),
        "throttled": "ottla.jepsen.world.whole.throttles:ThrottledCluster",
        "shares": "ottla.jepsen.world.whole.shares:SharesOfCluster",
        "share-leaders": "ottla.jepsen.world.whole.shares:ShareLeadersOfCluster",
        "tiered": "ottla.jepsen.world.whole.tier.tiered:TieredCluster",
        "tiered-day": "ottla.jepsen.world.whole.tier.day:DayCluster",
        "tiered-expiring": "ottla.jepsen.world.whole.tier.expiring:ExpiringCluster",
        "tiered-forked": "ottla.jepsen.world.whole.tier.forked:ForkedCluster",
        "ordered-shares": "ottla.jepsen.world.whole.ordered_shares:OrderedSharesOfCluster",
        "transactions": "ottla.jepsen.world.whole.transactions:TransactionsOfCluster",
        "transactions-coordinators": (
            "ottla.jepsen.world.whole.transactions:CoordinatorsOfCluster"
        ),
        "transactions-clients": ("ottla.jepsen.world.whole.transactions:ClientVersionsOfCluster"),
        "transactions-compacted": (
            "ottla.jepsen.world.whole.transactions:CompactedTransactionsOfCluster"
        ),
    },
}
"""Import path of each search engine's class, by engine name and subject (the tested part of Ottla).
The first subject is the default."""

SENTENCES = {
    "walk": "no clock: any timer may fire, any message may be next, crashes everywhere",
    "whole": "whole controllers, brokers and clients in virtual time",
}


def subjects_of(name: str) -> tuple[str, ...]:
    """Return the names of the subjects (parts of Ottla) that a search engine can test. Raises
    RefusedError if there is no such engine."""
    if name not in ENGINES:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"there is no engine {name!r}")
    return tuple(ENGINES[name])


def make_engine(name: str, subject: str | None = None) -> Engine:
    """Create a search engine by its name. If `subject` is None, the engine's default subject is
    used. Raises RefusedError if there is no such engine or subject."""
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
