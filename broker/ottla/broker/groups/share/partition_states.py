"""Initialisation, reset and deletion of the durable states of a group's partitions. Pure.

A request is sent to the share coordinator once the records that announce it are committed. Its
outcome returns as a new event of the shard that then serves the group, which may be another shard
object than the one that sent it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from ottla.broker.coordinators.answer_collector import AnswerCollector
from ottla.broker.coordinators.effects import Instant, Outbox, Responder
from ottla.broker.coordinators.share_persister import SharePartitionKey, SharePersister
from ottla.broker.groups.share.share_partitions import Initialization
from ottla.model.errors import ErrorCode

Codes: TypeAlias = Sequence[ErrorCode]


class StateOutcomes(Protocol):
    """Receiver of the outcomes: the share groups of a shard."""

    def on_initialized(
        self, group_id: str, wanted: Sequence[Initialization], codes: Codes, now: Instant
    ) -> None:
        """Handle the answers to initialisations."""
        ...

    def on_reset(
        self,
        group_id: str,
        wanted: Sequence[Initialization],
        codes: Codes,
        responder: Responder,
        now: Instant,
    ) -> None:
        """Handle the answers to a change of offsets. The response is an error code for each
        partition."""
        ...

    def on_deleted(
        self,
        group_id: str,
        keys: Sequence[SharePartitionKey],
        codes: Codes,
        responder: Responder,
        now: Instant,
    ) -> None:
        """Handle the answers to deletions. The response is an error code for each partition."""
        ...


Later: TypeAlias = Callable[[str, Responder, Callable[[StateOutcomes, Instant], None]], None]
"""Calls a function with the share groups of the shard that serves a group now, or the responder
with an error code if no shard serves it here."""


class SharePorts(NamedTuple):
    """Access of the share groups of a shard to the share coordinators."""

    persister: SharePersister
    later: Later


class PartitionStates:
    """Requests about durable states of one shard's groups."""

    def __init__(self, outbox: Outbox, ports: SharePorts | None) -> None:
        """Without ports, no request is sent, and no partition is ever initialised."""
        self._outbox = outbox
        self._ports = ports

    def initialize(self, group_id: str, wanted: Sequence[Initialization]) -> None:
        """Initialise states when everything written so far is committed."""
        self._initialize(
            group_id,
            wanted,
            lambda shares, codes, now: shares.on_initialized(group_id, wanted, codes, now),
            _ignore,
        )

    def reset(self, group_id: str, wanted: Sequence[Initialization], responder: Responder) -> None:
        """Initialise states again, with other start offsets. The responder gets an error code for
        each partition, or one for all."""
        self._initialize(
            group_id,
            wanted,
            lambda shares, codes, now: shares.on_reset(group_id, wanted, codes, responder, now),
            responder,
        )

    def delete(
        self, group_id: str, keys: Sequence[SharePartitionKey], responder: Responder
    ) -> None:
        """Delete states. The responder gets an error code for each partition, or one for all."""
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

            collector = AnswerCollector(len(keys), on_all)
            for at, key in enumerate(keys):
                ports.persister.delete(key, on_done=collector.responder(at))

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

            collector = AnswerCollector(len(wanted), on_all)
            for at, one in enumerate(wanted):
                ports.persister.initialize(
                    SharePartitionKey(group_id, one.topic_id, one.partition),
                    state_epoch=one.state_epoch,
                    start_offset=one.start_offset,
                    on_done=collector.responder(at),
                )

        self._outbox.answer_when_committed(send, ErrorCode.NONE)


def _ignore(code: ErrorCode) -> None:
    """Ignore that an initialisation could not be sent: a timer or the next coordinator repeats
    it."""
