"""Mutants that only time shows: sessions, and calls that come too late."""

from typing import Any

from ottla.controller.sessions import BrokerSessions, Session
from ottla.jepsen.world.bugs.mutant import Mutant, patched
from ottla.metadata.image import MetadataImage
from ottla.model.ids import NodeId, Offset


def _sessions_never_end() -> Any:
    def expired(self: BrokerSessions, image: MetadataImage, now_ms: int) -> tuple[()]:
        return ()

    return patched(BrokerSessions, expired=expired, is_valid=lambda self, broker, now_ms: True)


def _heartbeats_do_not_lengthen_sessions() -> Any:
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


MUTANTS = (
    Mutant(
        name="session-never-ends",
        sentence="A broker that is dead counts as alive for ever, and may not come back.",
        engine="B",
        subject="cluster",
        plant=_sessions_never_end,
        seed_count=4,
        is_quick=True,
    ),
    Mutant(
        name="heartbeat-lengthens-nothing",
        sentence="A session ends when its length has passed, whatever is heard of the broker.",
        engine="B",
        subject="cluster",
        plant=_heartbeats_do_not_lengthen_sessions,
        seed_count=4,
        is_quick=True,
    ),
)
