"""Mutants that only time shows: sessions, and calls that come too late."""

from typing import Any

from ottla.controller.sessions import BrokerSessions
from ottla.jepsen.world.bugs.controller_bugs import count_no_contact_but_the_first
from ottla.jepsen.world.bugs.mutant import Mutant, patched
from ottla.metadata.image import MetadataImage


def _sessions_never_end() -> Any:
    def expired(self: BrokerSessions, image: MetadataImage, now_ms: int) -> tuple[()]:
        return ()

    return patched(BrokerSessions, expired=expired, is_valid=lambda self, broker, now_ms: True)


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
        plant=count_no_contact_but_the_first,
        seed_count=4,
        is_quick=True,
    ),
)
