"""Wall clock and random numbers of a run: during a run, the standard library's functions return
virtual time and numbers from the seed."""

import random
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch
from uuid import UUID

import trio

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.whole.clock import WALL_START_MS


def _wall_ns() -> int:
    return WALL_START_MS * 1_000_000 + int(trio.current_time() * 1e6) * 1_000


@contextmanager
def guarded(chance: Chance) -> Iterator[None]:
    """Return a context in which time and random numbers come from the running world."""
    state = random.getstate()
    random.seed(chance.stream("random").below(1 << 62))
    ids = chance.stream("uuid")

    def uuid4() -> UUID:
        return ids.uuid()

    with (
        patch.object(time, "time", lambda: _wall_ns() / 1e9),
        patch.object(time, "time_ns", _wall_ns),
        patch.object(uuid, "uuid4", uuid4),
        patch("ottla.client.groups.group.uuid4", uuid4),
    ):
        try:
            yield
        finally:
            random.setstate(state)
