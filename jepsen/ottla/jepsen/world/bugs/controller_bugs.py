"""Mutants (deliberate bugs that the simulation must find) in the controller: elections, eligible
leader replicas (ELR), ISR changes, reassignments, broker registrations."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ottla.controller.decision import Decision, decided
from ottla.controller.membership import brokers
from ottla.controller.membership.brokers import BrokerControlState
from ottla.controller.membership.sessions import BrokerSessions, Session
from ottla.controller.replication import elections, partition_change, partitions
from ottla.controller.replication.partition_change import (
    Assignment,
    Election,
    ElectionResult,
    Rules,
)
from ottla.controller.settings import configs
from ottla.jepsen.world.bugs.mutant import Mutant, Plant, patched, walk_mutant
from ottla.metadata import topics_fold
from ottla.metadata.image import BrokerRegistration, MetadataImage, PartitionState
from ottla.metadata.records import Record
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.settings.controller import ControllerConfig
from ottla.proto import controller_pb2 as pb
from ottla.proto import metadata_pb2

# --- elections ------------------------------------------------------------------------------------


@contextmanager
def _elect_anybody() -> Iterator[None]:
    original = elections.TopicRules.of

    def of(self: elections.TopicRules, topic: Any, state: PartitionState) -> Rules:
        return replace(original(self, topic, state), allows_unclean=True)

    with patched(elections.TopicRules, of=of):
        yield


@contextmanager
def _elect_the_fenced() -> Iterator[None]:
    original = elections.TopicRules.of

    def of(self: elections.TopicRules, topic: Any, state: PartitionState) -> Rules:
        return replace(original(self, topic, state), can_lead=lambda replica: True)

    with patched(elections.TopicRules, of=of):
        yield


@contextmanager
def _elect_the_last_known_at_once() -> Iterator[None]:
    original = partition_change.elect

    def elect(
        state: PartitionState,
        rules: Rules,
        election: Election,
        *,
        isr: tuple[NodeId, ...],
        elr: tuple[NodeId, ...],
    ) -> ElectionResult:
        found = original(state, rules, election, isr=isr, elr=elr)
        if found.leader >= 0:
            return found
        for replica in state.last_known_elr:
            if rules.can_lead(replica):
                return ElectionResult(replica, is_unclean=True)
        return found

    with patched(partition_change, elect=elect):
        yield


@contextmanager
def _keep_the_leader_epoch() -> Iterator[None]:
    original = topics_fold.merge

    def merge(old: PartitionState, record: metadata_pb2.PartitionChange) -> PartitionState:
        state = original(old, record)
        return replace(state, leader_epoch=Epoch(max(old.leader_epoch, 1)))

    with patched(topics_fold, merge=merge):
        yield


@contextmanager
def _drop_a_recovery_in_silence() -> Iterator[None]:
    """Mutant: elect a leader that may lack records, without marking this election as unclean."""
    original = partition_change.elect

    def elect(*arguments: Any, **named: Any) -> ElectionResult:
        return original(*arguments, **named)._replace(is_unclean=False)

    with patched(partition_change, elect=elect):
        yield


# --- eligible leader replicas ---------------------------------------------------------------------


@contextmanager
def _clear_elr_early() -> Iterator[None]:
    original = partition_change._eligible

    def eligible(
        state: PartitionState, rules: Rules, isr: tuple[NodeId, ...], unclean: Any
    ) -> tuple[NodeId, ...]:
        return () if isr else original(state, rules, isr, unclean)

    with patched(partition_change, _eligible=eligible):
        yield


def _never_clear_elr() -> Any:
    def eligible(
        state: PartitionState, rules: Rules, isr: tuple[NodeId, ...], unclean: Any
    ) -> tuple[NodeId, ...]:
        held = {*state.elr, *state.isr}.difference(isr, unclean)
        return tuple(replica for replica in state.replicas if replica in held)

    return patched(partition_change, _eligible=eligible)


def _keep_elr_over_settings() -> Any:
    return patched(configs, is_elr_enabled=lambda image: False)


@contextmanager
def _crashed_stay_eligible() -> Iterator[None]:
    original = elections.brokers_unavailable

    def leave(
        image: MetadataImage,
        config: ControllerConfig,
        leaving: Sequence[NodeId],
        *,
        is_unclean: bool = False,
        **rest: Any,
    ) -> Iterator[Record]:
        return original(image, config, leaving, **rest)

    with patched(brokers, brokers_unavailable=leave):
        yield


@contextmanager
def _every_start_is_clean() -> Iterator[None]:
    original = brokers.register

    def register(image: MetadataImage, *rest: Any, **named: Any) -> Any:
        request: pb.RegisterRequest = rest[2]
        known = image.brokers.get(NodeId(request.broker_id))
        if known is not None:
            request.previous_broker_epoch = known.epoch
        return original(image, *rest, **named)

    with patched(brokers, register=register):
        yield


# --- the ISR --------------------------------------------------------------------------------------


def _fenced_stay_in_isr() -> Any:
    def fence(
        image: MetadataImage,
        config: ControllerConfig,
        sessions: BrokerSessions,
        now_ms: int,
        *,
        changes_max: int = 0,
    ) -> Decision[tuple[NodeId, ...]]:
        expired = sessions.expired(image, now_ms)
        ids = tuple(broker.id for broker in expired)
        return decided(image, map(brokers._fencing, expired), ids)

    return patched(brokers, fence_expired=fence)


@contextmanager
def _overlook(*codes: ErrorCode) -> Iterator[None]:
    original = partitions._fault_of

    def fault_of(*arguments: Any) -> ErrorCode | None:
        found = original(*arguments)
        return None if found in codes else found

    with patched(partitions, _fault_of=fault_of):
        yield


def _alter_whatever_was_before() -> Any:
    return _overlook(ErrorCode.INVALID_UPDATE_VERSION)


def _alter_for_the_deposed() -> Any:
    return _overlook(
        ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_REQUEST
    )


def _alter_with_the_ineligible() -> Any:
    return _overlook(ErrorCode.INELIGIBLE_REPLICA)


def _alter_with_earlier_lives() -> Any:
    def is_eligible(image: MetadataImage, member: pb.BrokerState) -> bool:
        broker = image.brokers.get(NodeId(member.broker_id))
        return broker is not None and broker.is_active

    return patched(partitions, _is_eligible=is_eligible)


# --- reassignments --------------------------------------------------------------------------------


@contextmanager
def _end_reassignments_early() -> Iterator[None]:
    original = Assignment.completed

    def completed(self: Assignment, isr: tuple[NodeId, ...], can_lead: Any) -> Assignment | None:
        return original(replace(self, adding=self.removing), isr, can_lead)

    with patched(Assignment, completed=completed):
        yield


# --- brokers' lives -------------------------------------------------------------------------------


def _let_a_second_process_in() -> Any:
    return patched(brokers, _refuse_second_incarnation=lambda known: None)


@contextmanager
def _keep_the_broker_epoch() -> Iterator[None]:
    original = brokers.register

    def register(image: MetadataImage, *rest: Any, **named: Any) -> Any:
        request: pb.RegisterRequest = rest[2]
        known = image.brokers.get(NodeId(request.broker_id))
        decision = original(image, *rest, **named)
        if known is not None:
            decision.records[-1].register_broker.broker_epoch = known.epoch
            decision.reply.broker_epoch = known.epoch
        return decision

    with patched(brokers, register=register):
        yield


@contextmanager
def _unfence_the_blind() -> Iterator[None]:
    original = brokers.next_state

    def next_state(
        image: MetadataImage,
        sessions: BrokerSessions,
        broker: BrokerRegistration,
        request: pb.HeartbeatRequest,
        shutdown_offset: Offset | None,
    ) -> BrokerControlState:
        state = original(image, sessions, broker, request, shutdown_offset)
        is_wanted = state is BrokerControlState.FENCED and not request.want_fence
        return BrokerControlState.UNFENCED if is_wanted else state

    with patched(brokers, next_state=next_state):
        yield


def _drop_sessions_at_failover() -> Any:
    def reset(self: BrokerSessions, image: MetadataImage, now_ms: int) -> None:
        self._looked_ms = now_ms
        self._sessions = {}

    return patched(BrokerSessions, reset=reset)


def _sessions_never_end() -> Any:
    return patched(BrokerSessions, expired=lambda self, image, now_ms: ())


def _sessions_are_always_valid() -> Any:
    def expired(self: BrokerSessions, image: MetadataImage, now_ms: int) -> tuple[()]:
        return ()

    return patched(BrokerSessions, expired=expired, is_valid=lambda self, broker, now_ms: True)


def _count_no_contact_but_the_first() -> Any:
    """Mutant: measure a broker's session timeout from its first heartbeat, and ignore all later
    heartbeats."""

    def touch(
        self: BrokerSessions,
        broker: NodeId,
        broker_epoch: int,
        metadata_offset: Offset,
        now_ms: int,
    ) -> Session:
        session = self._sessions.get(broker)
        if session is None or session.broker_epoch != broker_epoch:
            session = self._sessions[broker] = Session(broker_epoch, now_ms)
        session.metadata_offset = max(session.metadata_offset, metadata_offset)
        return session

    return patched(BrokerSessions, touch=touch)


def _row(
    name: str,
    sentence: str,
    plant: Plant,
    subject: str,
    seed_count: int = 2_000,
    *,
    is_quick: bool = True,
) -> Mutant:
    return walk_mutant(name, sentence, plant, seed_count, subject=subject, is_quick=is_quick)


def _registers_unsupported_levels() -> Any:
    """Mutant: register a controller although it does not support a finalized feature level. This
    also applies to a controller that was unregistered before."""
    from ottla.controller.membership import controllers

    return patched(controllers, uncovered=lambda levels, ranges: None)


MUTANTS = (
    _row(
        "controller-returns-unsupported",
        "a controller registers again though it does not support a level that was raised meanwhile",
        _registers_unsupported_levels,
        "features",
        200,
    ),
    _row(
        "controller-elect-anybody",
        "any live replica is elected if no eligible one exists",
        _elect_anybody,
        "replication",
    ),
    _row("controller-elect-fenced", "a fenced broker is elected", _elect_the_fenced, "controller"),
    _row(
        "controller-last-known",
        "the last known leader is elected while others are eligible",
        _elect_the_last_known_at_once,
        "controller",
    ),
    _row(
        "controller-epoch-kept",
        "a new leader does not raise the leader epoch",
        _keep_the_leader_epoch,
        "replication",
    ),
    _row(
        "controller-silent-loss",
        "the last known leader is elected as if no record could be lost",
        _drop_a_recovery_in_silence,
        "controller",
    ),
    _row(
        "controller-elr-early",
        "the ELR is cleared as soon as one replica is in sync",
        _clear_elr_early,
        "replication",
    ),
    _row("controller-elr-kept", "the ELR is never cleared", _never_clear_elr, "replication"),
    _row(
        "controller-elr-over-settings",
        "a change of min.insync.replicas keeps the ELRs of the old one (KIP-966)",
        _keep_elr_over_settings,
        "replication",
    ),
    _row(
        "controller-crashed-eligible",
        "a broker stays in the ELR after an unclean stop",
        _crashed_stay_eligible,
        "replication",
    ),
    _row(
        "controller-always-clean",
        "every restart counts as clean",
        _every_start_is_clean,
        "replication",
    ),
    _row(
        "controller-fenced-in-isr",
        "a fenced broker stays in ISR",
        _fenced_stay_in_isr,
        "replication",
    ),
    _row(
        "controller-no-compare",
        "an ISR change is applied at any partition epoch",
        _alter_whatever_was_before,
        "replication",
        10_000,
    ),
    _row(
        "controller-deposed-alters",
        "a deposed leader may change the ISR",
        _alter_for_the_deposed,
        "replication",
        10_000,
    ),
    _row(
        "controller-ineligible",
        "an ISR change may name a fenced broker",
        _alter_with_the_ineligible,
        "replication",
    ),
    _row(
        "controller-earlier-lives",
        "an ISR change may contain an earlier process of a broker (KIP-903)",
        _alter_with_earlier_lives,
        "replication",
        20_000,
        is_quick=False,
    ),
    _row(
        "controller-reassigned-early",
        "a reassignment ends before the new replicas are in sync",
        _end_reassignments_early,
        "replication",
    ),
    _row(
        "controller-second-process",
        "a second process takes a live broker's id",
        _let_a_second_process_in,
        "controller",
    ),
    _row(
        "controller-broker-epoch",
        "a broker's next process gets the epoch of the last one",
        _keep_the_broker_epoch,
        "controller",
    ),
    _row(
        "controller-unfence-blind",
        "a broker is unfenced before it has seen its registration",
        _unfence_the_blind,
        "controller",
    ),
    _row(
        "controller-sessions-dropped",
        "a new controller drops the sessions of all brokers",
        _drop_sessions_at_failover,
        "controller",
    ),
    _row("controller-sessions-endless", "sessions never expire", _sessions_never_end, "controller"),
    _row(
        "session-never-ends",
        "a dead broker counts as alive permanently, and cannot register again",
        _sessions_are_always_valid,
        "controller",
    ),
    _row(
        "controller-sessions-stale",
        "a heartbeat does not prolong a session",
        _count_no_contact_but_the_first,
        "controller",
    ),
)
