"""State machine of a producer's transactions, and the meanings of coordinators' responses.

Pure. There are two protocols. The protocol of a transaction is selected at its start:
- EXPLICIT (transaction.version 0 and 1): each partition and group is added at the coordinator
  before the first write to it. The epoch remains the same for several transactions.
- IMPLICIT (KIP-890): the write itself adds the partition. The response to EndTxn contains the
  producer id and epoch of the next transaction.

Invariants:
- AddedBeforeSent: with EXPLICIT, no batch is sent for a partition that the coordinator has not
  added.
- EndedIfBegun: a transaction is ended at the coordinator if the coordinator may know it, and only
  then.
- OneOutcome: after the first request to commit, a transaction is aborted only if it is certainly
  not committed.
- NoLateRequests: with EXPLICIT, if a request may still arrive late, the next transaction has a new
  epoch.
- FencedForGood: a fenced producer starts no other transaction.
"""

from collections.abc import Iterable
from enum import Enum, auto

from ottla.client.produce.accumulator import ProducerIdentity
from ottla.model.errors import ErrorCode, RefusedError, row_of
from ottla.model.ids import TopicPartition

IMPLICIT_FROM_LEVEL = 2
"""First level of the feature transaction.version at which a write itself adds its partition to the
transaction (KIP-890)."""
PRODUCE_ADDS_FROM = 12
TXN_OFFSET_COMMIT_ADDS_FROM = 5
END_TXN_BUMPS_FROM = 5
ADD_PARTITIONS_VERSION_MAX = 3
"""Highest version of AddPartitionsToTxn that clients use. Only brokers send later versions."""


class ProducerFencedError(RefusedError):
    """Error if another producer has started to use the transactional id, or if the coordinator has
    ended the transaction.

    This error is permanent: the producer sends no further requests.
    """


class TransactionAbortedError(RefusedError):
    """Error if a transaction could not be committed and was aborted. The application may repeat its
    work in a new transaction."""


class TransactionOutcomeUnknownError(RefusedError):
    """Error of a commit whose outcome is unknown. The producer cannot be used any longer.

    The application may open another producer with the transactional id. The committed offsets of
    the consumer group show whether the transaction was committed.
    """


class TransactionProtocol(Enum):
    """Protocol by which partitions are added to a transaction: EXPLICIT or IMPLICIT."""

    EXPLICIT = auto()
    IMPLICIT = auto()


class TransactionStage(Enum):
    """Stage of a producer's current transaction."""

    UNIDENTIFIED = auto()
    """Stage in which the producer must request a producer id and epoch, or a new epoch, from the
    transaction coordinator."""
    READY = auto()
    OPEN = auto()
    DOOMED = auto()
    """Stage after a part of the transaction has failed. The transaction can only be aborted."""
    PREPARED = auto()
    """Stage in which all records and offsets of the transaction are stored at the brokers. Another
    process completes the transaction, or this process aborts it."""
    COMMITTING = auto()
    ABORTING = auto()
    FINAL = auto()


class TransactionCall(Enum):
    """Kind of request that a transactional producer sends to a coordinator."""

    INITIALISE = auto()
    ADD = auto()
    COMMIT_OFFSETS = auto()
    COMMIT = auto()
    ABORT = auto()


class ResponseMeaning(Enum):
    """Meaning of a coordinator's response for the transaction. If several meanings apply, the
    meaning with the highest value is used."""

    DONE = 0
    RETRY = 1
    ABORT = 2
    """The transaction cannot be committed. The producer must abort it."""
    IDENTIFY = 3
    """The coordinator has no open transaction, or a new epoch will end the transaction."""
    UNKNOWN = 4
    """The transaction may or may not be committed."""
    FENCED = 5
    FATAL = 6


S = TransactionStage
NEXT_STAGES: dict[TransactionStage, frozenset[TransactionStage]] = {
    S.UNIDENTIFIED: frozenset({S.READY, S.FINAL}),
    S.READY: frozenset({S.OPEN, S.UNIDENTIFIED, S.FINAL}),
    S.OPEN: frozenset({S.DOOMED, S.PREPARED, S.COMMITTING, S.ABORTING, S.FINAL}),
    S.PREPARED: frozenset({S.COMMITTING, S.ABORTING, S.FINAL}),
    S.DOOMED: frozenset({S.ABORTING, S.FINAL}),
    S.COMMITTING: frozenset({S.READY, S.UNIDENTIFIED, S.ABORTING, S.FINAL}),
    S.ABORTING: frozenset({S.READY, S.UNIDENTIFIED, S.FINAL}),
    S.FINAL: frozenset(),
}

C = TransactionCall
E = ErrorCode
FENCING = frozenset({E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH})
"""Error codes which mean that the producer is fenced. Old versions of responses contain
INVALID_PRODUCER_EPOCH."""
OTHERWISE: dict[TransactionCall, ResponseMeaning] = {
    C.INITIALISE: ResponseMeaning.FATAL,
    C.ADD: ResponseMeaning.ABORT,
    C.COMMIT_OFFSETS: ResponseMeaning.ABORT,
    C.COMMIT: ResponseMeaning.UNKNOWN,
    C.ABORT: ResponseMeaning.IDENTIFY,
}
"""Meaning of error codes that are neither retriable nor listed in `VERDICTS`, by kind of
request."""
VERDICTS: dict[tuple[TransactionCall, ErrorCode], ResponseMeaning] = {
    # For a partition of a group, the epoch is stale.  The response to the abort shows whether the
    # producer is fenced.
    (C.COMMIT_OFFSETS, E.INVALID_PRODUCER_EPOCH): ResponseMeaning.ABORT,
    # Error codes by which a coordinator refuses a commit before it has written anything.
    (C.COMMIT, E.INVALID_TXN_STATE): ResponseMeaning.ABORT,
    (C.COMMIT, E.INVALID_PRODUCER_ID_MAPPING): ResponseMeaning.ABORT,
    (C.COMMIT, E.TRANSACTION_ABORTABLE): ResponseMeaning.ABORT,
    (C.COMMIT, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED): ResponseMeaning.ABORT,
    # An abort that is refused because the transaction must be aborted: the states of coordinator
    # and producer contradict each other.
    (C.ABORT, E.TRANSACTION_ABORTABLE): ResponseMeaning.FATAL,
    (C.ABORT, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED): ResponseMeaning.FATAL,
    (C.ADD, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED): ResponseMeaning.FATAL,
    (C.COMMIT_OFFSETS, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED): ResponseMeaning.FATAL,
}


def verdict_of(call: TransactionCall, code: int) -> ResponseMeaning:
    """Return the meaning of an error code in the response to a request of kind `call`."""
    row = row_of(code)
    if code == E.NONE:
        return ResponseMeaning.DONE
    known = VERDICTS.get((call, ErrorCode(row.code)))
    if known is not None:
        return known
    if code in FENCING:
        return ResponseMeaning.FENCED
    return ResponseMeaning.RETRY if row.is_retriable else OTHERWISE[call]


def deciding_code(call: TransactionCall, codes: Iterable[int]) -> ErrorCode:
    """Return the most severe of the error codes of several partitions.

    OPERATION_NOT_ATTEMPTED is ignored if another partition has an error code, because that other
    error is the cause.
    """
    found = {row_of(code).code for code in codes}
    reasons = found - {E.OPERATION_NOT_ATTEMPTED} or found
    if not reasons:
        return E.NONE
    return ErrorCode(max(reasons, key=lambda code: (verdict_of(call, code).value, code)))


def protocol_for(
    feature_level: int, *, produce: int, txn_offset_commit: int, end_txn: int
) -> TransactionProtocol:
    """Return the protocol for the next transaction. It depends on the level of the feature
    transaction.version, and on the API versions that client and brokers have in common.

    If one of these APIs is limited to old versions, the client must not use new versions of the
    other APIs.
    """
    is_implicit = (
        feature_level >= IMPLICIT_FROM_LEVEL
        and produce >= PRODUCE_ADDS_FROM
        and txn_offset_commit >= TXN_OFFSET_COMMIT_ADDS_FROM
        and end_txn >= END_TXN_BUMPS_FROM
    )
    return TransactionProtocol.IMPLICIT if is_implicit else TransactionProtocol.EXPLICIT


class TransactionFlow:
    """State machine of one producer's transactions."""

    def __init__(self) -> None:
        self.stage = TransactionStage.UNIDENTIFIED
        self.identity: ProducerIdentity | None = None
        self.protocol = TransactionProtocol.EXPLICIT
        self.final: RefusedError | None = None
        """Permanent error that prevents the producer from starting another transaction, or None."""
        self.must_end = False
        """True if the transaction coordinator may know the transaction. The producer must then send
        it a request to commit or abort the transaction."""
        self.number = 0
        """Number of transactions that the producer has started so far."""
        self._has_used_identity = False
        """True if a transaction was started under the current epoch."""
        self._has_late_requests = False
        self._has_lost_commit = False
        self._wanted: dict[TopicPartition, None] = {}
        self._added: set[TopicPartition] = set()
        self._groups: set[str] = set()

    # Between transactions.

    def must_identify(self, protocol: TransactionProtocol) -> bool:
        """Return whether the producer must request a new epoch before it can start a transaction of
        this protocol."""
        if self.stage is TransactionStage.UNIDENTIFIED:
            return True
        assert self.stage is TransactionStage.READY
        return self._has_used_identity and protocol is not self.protocol

    def identify(self, identity: ProducerIdentity) -> None:
        """Use a new producer id and epoch for the next transactions."""
        if self.stage is TransactionStage.READY:
            self._move(TransactionStage.UNIDENTIFIED)
        self._move(TransactionStage.READY)
        self.identity = identity
        self._has_used_identity = False

    def begin(self, protocol: TransactionProtocol) -> None:
        """Start a transaction. `protocol` is the version of the transaction protocol that its
        requests use."""
        assert not self.must_identify(protocol)
        self._move(TransactionStage.OPEN)
        self.number += 1
        self.protocol = protocol
        self.must_end = self._has_late_requests = self._has_lost_commit = False
        self._has_used_identity = True
        self._wanted.clear()
        self._added.clear()
        self._groups.clear()

    # In a transaction.

    def want(self, at: TopicPartition) -> bool:
        """Record that a partition has records to send. Returns True if the coordinator must first
        add the partition to the transaction."""
        if self.protocol is TransactionProtocol.IMPLICIT or at in self._added:
            return False
        self._wanted[at] = None
        return True

    def wanted(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that the coordinator still has to add to the transaction."""
        return tuple(self._wanted) if self.stage is TransactionStage.OPEN else ()

    def admits(self, at: TopicPartition) -> bool:
        """Return whether batches of a partition may be sent at present. In mode EXPLICIT, the
        coordinator must first have added the partition to the transaction."""
        return self.protocol is TransactionProtocol.IMPLICIT or at in self._added

    def on_sent(self) -> None:
        """Record that a request was sent. After this request, the coordinator may know the
        transaction."""
        self.must_end = True

    def on_lost(self) -> None:
        """Record that the response to a request was lost. The request itself may still arrive
        late."""
        self._has_late_requests = True
        self._has_lost_commit |= self.stage is TransactionStage.COMMITTING

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Record that the coordinator has added partitions to the transaction."""
        for at in partitions:
            self._wanted.pop(at, None)
            self._added.add(at)

    def must_add_group(self, group_id: str) -> bool:
        """Return whether the coordinator must add a group to the transaction before the group's
        offsets are sent."""
        return self.protocol is TransactionProtocol.EXPLICIT and group_id not in self._groups

    def add_group(self, group_id: str) -> None:
        """Record that the coordinator has added a group to the transaction."""
        self._groups.add(group_id)

    def require_abort(self) -> None:
        """Allow only an abort as the end of the transaction."""
        if self.stage is TransactionStage.OPEN:
            self._move(TransactionStage.DOOMED)

    # End.

    def prepare(self) -> None:
        """Accept no further records. Another process will end the transaction."""
        self._move(TransactionStage.PREPARED)

    def take_over(self, identity: ProducerIdentity, protocol: TransactionProtocol) -> None:
        """Continue a transaction that another process has prepared, under its producer id and
        epoch."""
        self.identify(identity)
        self.begin(protocol)
        self.prepare()
        self.must_end = True

    def begin_commit(self) -> None:
        """Accept no further records, and start to commit the transaction."""
        self._move(TransactionStage.COMMITTING)

    def commit_verdict(self, verdict: ResponseMeaning) -> ResponseMeaning:
        """Return the meaning of the last response to a commit, which also depends on earlier
        attempts.

        If the response to an earlier attempt was lost, a refusal may only mean that the transaction
        is already committed.
        """
        is_refused = verdict is not ResponseMeaning.DONE
        return ResponseMeaning.UNKNOWN if is_refused and self._has_lost_commit else verdict

    def begin_abort(self) -> None:
        """Accept no further records, and start to abort the transaction."""
        self._move(TransactionStage.ABORTING)

    def on_ended(self, identity: ProducerIdentity | None) -> bool:
        """Record that the transaction has ended. Returns True if the producer has a new epoch.

        `identity` is the producer id and epoch in the EndTxn response. It is None if the response
        contains no id, or if no request was sent.
        """
        is_abort = self.stage is TransactionStage.ABORTING
        is_explicit = self.protocol is TransactionProtocol.EXPLICIT
        if self.must_end and is_explicit and (is_abort or self._has_late_requests):
            # A batch or another request that arrives late would count for the next transaction.
            self._move(TransactionStage.UNIDENTIFIED)
            return False
        if self.must_end and not is_explicit and identity is None:
            self._move(TransactionStage.UNIDENTIFIED)
            return False
        self._move(TransactionStage.READY)
        if identity is None:
            return False
        self.identity = identity
        self._has_used_identity = False
        return True

    def give_up(self) -> None:
        """Stop the attempts to abort the transaction, because the coordinator does not respond or
        does not know the transaction.

        The next producer epoch ends the transaction.
        """
        assert self.stage is TransactionStage.ABORTING
        self._move(TransactionStage.UNIDENTIFIED)

    def end_for_good(self, why: RefusedError) -> None:
        """Refuse all further transactions of this producer with the error `why`."""
        if self.stage is not TransactionStage.FINAL:
            self._move(TransactionStage.FINAL)
            self.final = why

    def _move(self, stage: TransactionStage) -> None:
        assert stage in NEXT_STAGES[self.stage], f"{self.stage.name} -> {stage.name}"
        self.stage = stage
