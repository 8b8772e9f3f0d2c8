"""Property tests for programs that use Kafka: a simulated cluster, the program, and faults, in the
test's process and in virtual time.

plans.py              plans of runs: cluster, faults and their moments
search/               Hypothesis strategies for plans
run.py                runs a scenario
world.py              the running world: the scenario's calls
harness.py            the scenario's clients
settling.py           lag of consumer groups, and the wait for its end
instances.py          instances of the program
program_modules.py    copies of the program's modules for each life
life.py               the life of an instance: its steps and its end
nemesis.py            fault injection
request_watch.py      counts the requests of instances
request_records.py    finds the records in requests and responses of instances
failure_files.py      files of failing runs, for replays
checkers.py           checks of inputs, outputs and lag
timeline.py           events of a run, as text
timeline_page.py      events of a run, as a page
timeline_event.py     one event
databases/            a transactional store, and SQLite
soak/                 long searches in several processes
records.py            records that a scenario writes and reads
runtime/              event loop, clocks and random numbers of programs; refused calls
determinism.py        the check that two runs with the same seed are equal
errors.py             exceptions
"""

from ottla.testing.world.checkers import (
    at_least_once,
    bounded_lag,
    exactly_once,
    in_key_order,
    no_lost_dead_letter,
    settles,
)
from ottla.testing.world.databases.sqlite import sqlite
from ottla.testing.world.databases.store import StoreConflictError
from ottla.testing.world.databases.store import WorldStore as Store
from ottla.testing.world.determinism import check_determinism
from ottla.testing.world.errors import (
    CheckFailedError,
    ClusterFailedError,
    NondeterminismError,
    NotInWorldError,
    SharedGlobalsWarning,
    WorldError,
)
from ottla.testing.world.instances import Instance
from ottla.testing.world.plans import (
    At,
    Fault,
    FaultSchedule,
    FillDisk,
    KillBroker,
    LoseAnswer,
    Moment,
    Request,
    SlowInstance,
    Stop,
)
from ottla.testing.world.plans import KillFault as Kill
from ottla.testing.world.plans import MarkMoment as Mark
from ottla.testing.world.plans import PartitionFault as Partition
from ottla.testing.world.plans import PauseFault as Pause
from ottla.testing.world.plans import WorldPlan as ClusterPlan
from ottla.testing.world.records import LagReading, WrittenRecord
from ottla.testing.world.records import ScenarioRecord as Record
from ottla.testing.world.run import RunReport, run
from ottla.testing.world.search.state_machine import WorldStateMachine, WorldThread
from ottla.testing.world.search.strategies import cluster, faults, settings
from ottla.testing.world.timeline import Timeline
from ottla.testing.world.timeline_event import TimelineEvent
from ottla.testing.world.world import SimulatedWorld as World
from ottla.testing.world.world import mark

__all__ = [
    "At",
    "CheckFailedError",
    "ClusterFailedError",
    "ClusterPlan",
    "Fault",
    "FaultSchedule",
    "FillDisk",
    "Instance",
    "Kill",
    "KillBroker",
    "LagReading",
    "LoseAnswer",
    "Mark",
    "Moment",
    "NondeterminismError",
    "NotInWorldError",
    "Partition",
    "Pause",
    "Record",
    "Request",
    "RunReport",
    "SharedGlobalsWarning",
    "SlowInstance",
    "Stop",
    "Store",
    "StoreConflictError",
    "Timeline",
    "TimelineEvent",
    "World",
    "WorldError",
    "WorldStateMachine",
    "WorldThread",
    "WrittenRecord",
    "at_least_once",
    "bounded_lag",
    "check_determinism",
    "cluster",
    "exactly_once",
    "faults",
    "in_key_order",
    "mark",
    "no_lost_dead_letter",
    "run",
    "settings",
    "settles",
    "sqlite",
]
