"""Initialises, resets and deletes the durable states of a share group's partitions. Pure.

A request is sent to the share coordinator once the records that announce it are committed. Its
result is an event of the shard that serves the group when the result arrives. The shard object may
have been replaced since the request was sent.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from ottla.broker.coordinators.answer_collector import AnswerCollector
from ottla.broker.coordinators.effects import Instant, Outbox, Responder
from ottla.broker.coordinators.share_persister import SharePartitionKey, SharePersister
from ottla.broker.groups.share.share_partitions import Initialization
from ottla.model.errors import ErrorCode

Codes: TypeAlias = Sequence[ErrorCode]


ROUND_MAX = 1_000
"""Maximum number of requests about durable states of one group that are sent at once. Sending this
many requests takes about ten milliseconds. A larger value blocks the event loop longer. With a
smaller value, a large group takes more rounds."""


def ask_in_rounds(
    count: int, ask: Callable[[int, Responder], None], on_all: Callable[[Sequence[Any]], None]
) -> None:
    """Call `ask`, which sends a request, for each index below `count`, in rounds of at most
    ROUND_MAX. The next round begins when the results of the previous round have arrived. After the
    last round, call `on_all` with all results, ordered by index."""
    answers: list[Any] = []

    def on_round(found: Sequence[Any]) -> None:
        answers.extend(found)
        begin_round()

    def begin_round() -> None:
        start = len(answers)
        if start == count:
            on_all(answers)
            return
        collector = AnswerCollector(min(count - start, ROUND_MAX), on_round)
        for at in range(start, min(start + ROUND_MAX, count)):
            ask(at, collector.responder(at - start))

    begin_round()


class StateOutcomes(Protocol):
    """Interface of a shard's share groups, which receive the results of their requests to share
    coordinators about durable states."""

    def on_initialized(
        self, group_id: str, wanted: Sequence[Initialization], codes: Codes, now: Instant
    ) -> None:
        """Handle the share coordinators' responses to requests that initialise durable states of
        share partitions."""
        ...

    def on_reset(
        self,
        group_id: str,
        wanted: Sequence[Initialization],
        codes: Codes,
        responder: Responder,
        now: Instant,
    ) -> None:
        """Handle the share coordinators' responses to requests that change start offsets of share
        partitions. `responder` is called with an error code for each partition."""
        ...

    def on_deleted(
        self,
        group_id: str,
        keys: Sequence[SharePartitionKey],
        codes: Codes,
        responder: Responder,
        now: Instant,
    ) -> None:
        """Handle the share coordinators' responses to requests that delete durable states of share
        partitions. `responder` is called with an error code for each partition."""
        ...


Later: TypeAlias = Callable[[str, Responder, Callable[[StateOutcomes, Instant], None]], None]
"""Function that calls another function with the share groups of the shard that serves a group at
the time of the call.

Its arguments are the group's id, a responder, and the function to call. If no shard of this broker
serves the group, the responder gets an error code, and the function is not called.
"""


class SharePorts(NamedTuple):
    """Access to the share coordinators for the share groups of a group coordinator's shard."""

    persister: SharePersister
    later: Later


class PartitionStates:
    """Sends requests about the durable states of share partitions, for the groups of one
    coordinator shard."""

    def __init__(self, outbox: Outbox, ports: SharePorts | None) -> None:
        """Create the sender of requests about durable states. If `ports` is None, no request is
        sent, and no partition is ever initialised."""
        self._outbox = outbox
        self._ports = ports

    def initialize(self, group_id: str, wanted: Sequence[Initialization]) -> None:
        """Request the initialisation of the durable states of share partitions. The requests are
        sent as soon as all records written so far are committed."""
        self._initialize(
            group_id,
            wanted,
            lambda shares, codes, now: shares.on_initialized(group_id, wanted, codes, now),
            _ignore,
        )

    def reset(self, group_id: str, wanted: Sequence[Initialization], responder: Responder) -> None:
        """Initialise the durable states of share partitions again, with other start offsets.
        `responder` is called with an error code for each partition, or with one error code for all
        of them."""
        self._initialize(
            group_id,
            wanted,
            lambda shares, codes, now: shares.on_reset(group_id, wanted, codes, responder, now),
            responder,
        )

    def delete(
        self, group_id: str, keys: Sequence[SharePartitionKey], responder: Responder
    ) -> None:
        """Delete the durable states of share partitions. `responder` is called with an error code
        for each partition, or with one error code for all of them."""
        ports = self._ports

        def send(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE or ports is None:
                responder(code or ErrorCode.COORDINATOR_NOT_AVAILABLE)
                return

            def on_all(codes: Codes) -> None:
                ports.later(
                    group_id,
                    responder,
                    lambda shares, now: shares.on_deleted(group_id, keys, codes, responder, now),
                )

            ask_in_rounds(
                len(keys),
                lambda at, on_done: ports.persister.delete(keys[at], on_done=on_done),
                on_all,
            )

        self._outbox.answer_when_committed(send, ErrorCode.NONE)

    def _initialize(
        self,
        group_id: str,
        wanted: Sequence[Initialization],
        on_codes: Callable[[StateOutcomes, Codes, Instant], None],
        responder: Responder,
    ) -> None:
        ports = self._ports

        def send(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE or ports is None:
                responder(code or ErrorCode.COORDINATOR_NOT_AVAILABLE)
                return

            def on_all(codes: Codes) -> None:
                ports.later(group_id, responder, lambda shares, now: on_codes(shares, codes, now))

            def initialize(at: int, on_done: Responder) -> None:
                one = wanted[at]
                ports.persister.initialize(
                    SharePartitionKey(group_id, one.topic_id, one.partition),
                    state_epoch=one.state_epoch,
                    start_offset=one.start_offset,
                    on_done=on_done,
                )

            ask_in_rounds(len(wanted), initialize, on_all)

        self._outbox.answer_when_committed(send, ErrorCode.NONE)


def _ignore(code: ErrorCode) -> None:
    """Ignore the error code of an initialisation that could not be sent. A timer or the next
    coordinator repeats the initialisation."""
