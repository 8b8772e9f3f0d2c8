"""Queue of a share persister's calls to share coordinators: builds their requests, and decides
which failed calls are retried. Pure.

Calls for one share partition run one after another. Calls to one coordinator share a request if
they are ready at the same time and have the same kind and group.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from ottla.broker.coordinators.share_persister import (
    SharePartitionKey,
    SharePersister,
    ShareState,
    ShareSummary,
    StateBatch,
    settled_count,
)
from ottla.model.errors import ErrorCode
from ottla.model.values import frozen
from ottla.wire.codec_types import Message
from ottla.wire.messages import delete_share_group_state_request as deleted
from ottla.wire.messages import initialize_share_group_state_request as initialized
from ottla.wire.messages import read_share_group_state_request as states
from ottla.wire.messages import read_share_group_state_summary_request as summaries
from ottla.wire.messages import write_share_group_state_request as written
from ottla.wire.messages.delete_share_group_state_response import DeleteShareGroupStateResponse
from ottla.wire.messages.initialize_share_group_state_response import (
    InitializeShareGroupStateResponse,
)
from ottla.wire.messages.read_share_group_state_response import ReadShareGroupStateResponse
from ottla.wire.messages.read_share_group_state_summary_response import (
    ReadShareGroupStateSummaryResponse,
)
from ottla.wire.messages.write_share_group_state_response import WriteShareGroupStateResponse

E = ErrorCode

RETRIED = frozenset(
    (
        E.NOT_COORDINATOR,
        E.COORDINATOR_NOT_AVAILABLE,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.NETWORK_EXCEPTION,
    )
)
"""Error codes of a share coordinator after which a call is repeated, as in Kafka's
PersisterStateManager."""

RETRY_MS_FIRST = 50
RETRY_MS_MAX = 2_000
"""Maximum milliseconds between two attempts of a call to a share coordinator. The pause doubles
with each attempt. Kafka pauses for 1 s to 30 s. Record locks last at least 15 s, so the failover of
a coordinator should delay a write by less than 15 s."""

PATIENCE_MS = 15_000
"""Milliseconds after the first attempt during which a failed call to a share coordinator is
repeated. After that time, the call fails. Kafka's five attempts take about the same time."""

PARTITIONS_PER_REQUEST = 500
"""Maximum number of share partitions in one request to a share coordinator."""


class PersisterCall:
    """One call of a share persister for one share partition (such as a read of its state), with the
    callback for its result."""

    __slots__ = ("attempt_count", "begun_ms", "fields", "key", "kind", "on_done")

    def __init__(
        self,
        kind: "CallKind",
        key: SharePartitionKey,
        fields: dict[str, Any],
        on_done: Callable[[Any], None],
    ) -> None:
        self.kind = kind
        self.key = key
        self.fields = fields
        """Arguments of the share persister's call, except the key of the share partition."""
        self.on_done = on_done
        self.attempt_count = 0
        self.begun_ms = 0
        """Monotonic time in milliseconds of the call's first attempt."""

    def ask(self, persister: SharePersister, on_done: Callable[[Any], None]) -> None:
        """Make this call (such as a read of a state) through `persister`. The result is passed to
        `on_done`."""
        getattr(persister, self.kind.name)(self.key, **self.fields, on_done=on_done)

    def failed(self, code: ErrorCode) -> Any:
        """Return an answer to this share persister call that contains only an error code."""
        return self.kind.failed(code)

    def next_delay_ms(self, now_ms: int) -> int | None:
        """Return the milliseconds until the next attempt of this call, or None if the call has
        failed permanently."""
        if now_ms - self.begun_ms >= PATIENCE_MS:
            return None
        return min(RETRY_MS_FIRST << min(self.attempt_count - 1, 10), RETRY_MS_MAX)


def code_of(answer: Any) -> ErrorCode:
    """Return the error code in a share persister's answer."""
    return answer if isinstance(answer, ErrorCode) else ErrorCode(answer.code)


class CallOrder:
    """Share persister calls without an answer, in order for each share partition. Only the first
    call for a share partition is in progress."""

    __slots__ = ("_by_key", "count")

    def __init__(self) -> None:
        self._by_key: dict[SharePartitionKey, deque[PersisterCall]] = {}
        self.count = 0
        """Number of share persister calls without an answer."""

    def add(self, call: PersisterCall) -> bool:
        """Add a share persister call. Returns True if the call may begin at once, because no other
        call for its share partition is in progress."""
        self.count += 1
        calls = self._by_key.setdefault(call.key, deque())
        calls.append(call)
        return len(calls) == 1

    def end(self, call: PersisterCall) -> PersisterCall | None:
        """Remove the answered call of a share partition. Returns the next call for the same share
        partition, or None if no call is queued."""
        self.count -= 1
        calls = self._by_key[call.key]
        assert calls[0] is call
        calls.popleft()
        if calls:
            return calls[0]
        del self._by_key[call.key]
        return None


class CallQueue:
    """Share persister calls that can be sent to one coordinator, at most one for each share
    partition."""

    __slots__ = ("_ready",)

    def __init__(self) -> None:
        self._ready: dict[tuple[str, str], list[PersisterCall]] = {}

    def __bool__(self) -> bool:
        return bool(self._ready)

    def add(self, call: PersisterCall) -> None:
        """Add a share persister call that can be sent to the coordinator."""
        self._ready.setdefault((call.kind.name, call.key.group_id), []).append(call)

    def take(self) -> list[PersisterCall]:
        """Remove and return the share persister calls that the next request contains, the oldest
        first."""
        if not self._ready:
            return []
        together = next(iter(self._ready))
        calls = self._ready.pop(together)
        if len(calls) > PARTITIONS_PER_REQUEST:
            # The rest goes behind the calls of other groups.
            self._ready[together] = calls[PARTITIONS_PER_REQUEST:]
        return calls[:PARTITIONS_PER_REQUEST]

    def take_all(self) -> list[PersisterCall]:
        """Remove and return all share persister calls."""
        taken = [call for calls in self._ready.values() for call in calls]
        self._ready.clear()
        return taken


@frozen
class CallKind:
    """Kind of a share persister's call. Its name is the name of the method in `SharePersister`."""

    name: str
    response: type[Message]
    request: Callable[[str, Sequence[PersisterCall]], Message]
    """Function that returns one request to a share coordinator. Its arguments are the group id, and
    the calls for this group."""
    answer: Callable[[Any], Any]
    """Function that converts a share partition's entry in a response to the answer of the
    persister's call."""
    failed: Callable[[ErrorCode], Any]
    """Function that returns an answer to a share persister call with only an error code."""


def request_of(calls: Sequence[PersisterCall]) -> Message:
    """Return the request to a share coordinator that contains `calls`. All calls must have the same
    kind and group."""
    return calls[0].kind.request(calls[0].key.group_id, calls)


def answers_of(calls: Iterable[PersisterCall], response: Any) -> list[tuple[PersisterCall, Any]]:
    """Return each share persister call with its answer in a response. The answer is an error if the
    response lacks the share partition of the call."""
    found = {
        (topic.topic_id, result.partition): result
        for topic in response.results
        for result in topic.partitions
    }
    answers = []
    for call in calls:
        result = found.get((call.key.topic_id, call.key.partition))
        if result is None:
            answers.append((call, call.failed(E.UNKNOWN_SERVER_ERROR)))
        elif result.error_code:
            answers.append((call, call.failed(_code_of(result.error_code))))
        else:
            answers.append((call, call.kind.answer(result)))
    return answers


def _code_of(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return E.UNKNOWN_SERVER_ERROR


def _by_topic(calls: Iterable[PersisterCall]) -> dict[UUID, list[PersisterCall]]:
    found: dict[UUID, list[PersisterCall]] = {}
    for call in calls:
        found.setdefault(call.key.topic_id, []).append(call)
    return found


def _initialize_request(group_id: str, calls: Sequence[PersisterCall]) -> Message:
    return initialized.InitializeShareGroupStateRequest(
        group_id=group_id,
        topics=[
            initialized.InitializeStateData(
                topic_id=topic_id,
                partitions=[
                    initialized.PartitionData(partition=call.key.partition, **call.fields)
                    for call in of_topic
                ],
            )
            for topic_id, of_topic in _by_topic(calls).items()
        ],
    )


def _read_request(group_id: str, calls: Sequence[PersisterCall]) -> Message:
    return states.ReadShareGroupStateRequest(
        group_id=group_id,
        topics=[
            states.ReadStateData(
                topic_id=topic_id,
                partitions=[
                    states.PartitionData(partition=call.key.partition, **call.fields)
                    for call in of_topic
                ],
            )
            for topic_id, of_topic in _by_topic(calls).items()
        ],
    )


def _write_request(group_id: str, calls: Sequence[PersisterCall]) -> Message:
    return written.WriteShareGroupStateRequest(
        group_id=group_id,
        topics=[
            written.WriteStateData(
                topic_id=topic_id, partitions=[_written_partition(call) for call in of_topic]
            )
            for topic_id, of_topic in _by_topic(calls).items()
        ],
    )


def _written_partition(call: PersisterCall) -> written.PartitionData:
    fields = dict(call.fields)
    batches = fields.pop("batches")
    return written.PartitionData(
        partition=call.key.partition,
        state_batches=[written.StateBatch(**batch._asdict()) for batch in batches],
        **fields,
    )


def _delete_request(group_id: str, calls: Sequence[PersisterCall]) -> Message:
    return deleted.DeleteShareGroupStateRequest(
        group_id=group_id,
        topics=[
            deleted.DeleteStateData(
                topic_id=topic_id,
                partitions=[
                    deleted.PartitionData(partition=call.key.partition) for call in of_topic
                ],
            )
            for topic_id, of_topic in _by_topic(calls).items()
        ],
    )


def _summary_request(group_id: str, calls: Sequence[PersisterCall]) -> Message:
    return summaries.ReadShareGroupStateSummaryRequest(
        group_id=group_id,
        topics=[
            summaries.ReadStateSummaryData(
                topic_id=topic_id,
                partitions=[
                    summaries.PartitionData(partition=call.key.partition, **call.fields)
                    for call in of_topic
                ],
            )
            for topic_id, of_topic in _by_topic(calls).items()
        ],
    )


def _state_of(result: Any) -> ShareState:
    batches = tuple(
        StateBatch(
            batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count
        )
        for batch in result.state_batches
    )
    return ShareState(
        E.NONE, result.state_epoch, result.start_offset, settled_count(batches), batches
    )


def _summary_of(result: Any) -> ShareSummary:
    return ShareSummary(
        E.NONE,
        result.state_epoch,
        result.leader_epoch,
        result.start_offset,
        result.delivery_complete_count,
    )


def _done(result: Any) -> ErrorCode:
    return E.NONE


def _code_itself(code: ErrorCode) -> ErrorCode:
    return code


INITIALIZE = CallKind(
    "initialize",
    InitializeShareGroupStateResponse,
    _initialize_request,
    _done,
    _code_itself,
)
READ = CallKind("read", ReadShareGroupStateResponse, _read_request, _state_of, ShareState)
WRITE = CallKind("write", WriteShareGroupStateResponse, _write_request, _done, _code_itself)
DELETE = CallKind("delete", DeleteShareGroupStateResponse, _delete_request, _done, _code_itself)
READ_SUMMARY = CallKind(
    "read_summary",
    ReadShareGroupStateSummaryResponse,
    _summary_request,
    _summary_of,
    ShareSummary,
)
