"""Injects the faults of a run, one after the other. Each fault is healed and recorded in every
history.

The nemeses are drawn in a random order, and each is used once before any is used a second time. A
fault lasts one interval, and the cluster then has one interval without faults.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

import trio

from ottla.jepsen.history import Json

INJECT_TIMEOUT_S = 60.0
HEAL_TIMEOUT_S = 60.0
LEAD_IN_S = 5.0
"""Seconds without faults at the beginning of a run, in which the behaviour of a healthy cluster is
measured.
"""
JITTER = 0.2
"""Maximum fraction by which the interval of faults varies at random. Without the variation, faults
could synchronise with a timer of the cluster."""

RETRY_S = 1.0
"""Delay in seconds between two attempts to inject a fault. An attempt fails if the fault is not
allowed at that time, for example because a replica is not in sync."""
BREATH_S = 2.0
"""Delay in seconds between two faults of a nemesis that determines the durations of its own faults
and pauses."""

Note = Callable[[str, Json], None]


class InjectedNemesis(Protocol):
    """Interface of a nemesis for the fault injector. A nemesis with an `interval_s` determines the
    durations of its own faults and pauses."""

    @property
    def name(self) -> str:
        """Name of the nemesis, under which its faults are recorded."""
        ...

    async def inject(self, rng: Random) -> Json:
        """Inject one fault of the nemesis. Returns a report of the fault, empty if the fault is not
        allowed now."""
        ...

    async def heal(self) -> Json:
        """Heal the active fault of the nemesis, and return a report of the result."""
        ...


class FaultInjector:
    """Injector of the faults of a run, one after the other. It stops when the planned time is over,
    and leaves no fault active."""

    def __init__(
        self, nemeses: Sequence[InjectedNemesis], rng: Random, interval_s: float, note: Note
    ) -> None:
        self.injected: Counter[str] = Counter()
        self.errors: list[str] = []
        self.rows: list[dict[str, Json]] = []
        """Rows of the file faults.json, one for each injected fault."""
        self.now = ""
        """Name of the nemesis whose fault is active, or "" if no fault is active. The progress line
        shows it."""
        self._nemeses = list(nemeses)
        self._rng = rng
        self._interval_s = interval_s
        self._note = note
        self._deck: list[InjectedNemesis] = []

    async def run(self, seconds: float) -> None:
        """Inject and heal faults for `seconds`. A fault that is still active at the end is
        healed."""
        with trio.move_on_after(seconds):
            await trio.sleep(min(LEAD_IN_S, self._interval_s))
            while self._nemeses:
                await trio.sleep(await self._fault(self._dealt()))
            await trio.sleep_forever()

    def _dealt(self) -> InjectedNemesis:
        if not self._deck:
            self._deck = list(self._nemeses)
            self._rng.shuffle(self._deck)
        return self._deck.pop()

    def _jittered(self, seconds: float) -> float:
        return seconds * self._rng.uniform(1 - JITTER, 1 + JITTER)

    async def _fault(self, nemesis: InjectedNemesis) -> float:
        """Inject one fault of a nemesis and heal it. Returns the seconds until the next fault."""
        own_s: float | None = getattr(nemesis, "interval_s", None)
        row: dict[str, Json] = {"id": len(self.rows), "fault": nemesis.name}
        self.rows.append(row)
        self.now = nemesis.name
        self._note(nemesis.name, {"id": row["id"], "phase": "start"})
        try:
            did = await self._inject(nemesis, row)
            if did or own_s is not None:
                await trio.sleep(self._jittered(own_s or self._interval_s))
        finally:
            # The last fault is healed although the time is over.
            with trio.move_on_after(HEAL_TIMEOUT_S) as scope:
                scope.shield = True
                await self._heal(nemesis, row)
            if scope.cancelled_caught:
                self.errors.append(f"{nemesis.name} was not healed within {HEAL_TIMEOUT_S:g} s")
            value = {"id": row["id"], "phase": "end", "healed": row.get("healed")}
            self._note(nemesis.name, value)
            self.now = ""
        if own_s is not None:
            return BREATH_S
        return self._jittered(self._interval_s) if did else RETRY_S

    async def _inject(self, nemesis: InjectedNemesis, row: dict[str, Json]) -> bool:
        """Inject one fault of a nemesis, and record it in `row`. Returns whether the fault, or any
        part of it, was injected."""
        began = time.monotonic()
        try:
            with trio.fail_after(INJECT_TIMEOUT_S) as scope:
                # Injection is not cancelled midway: a partial fault could not be healed.
                scope.shield = True
                did = await nemesis.inject(self._rng)
        except Exception as error:
            # A failed injection of any kind is reported, and leaves the run undecided.
            row["error"] = f"{type(error).__name__}: {error}"
            self.errors.append(f"{nemesis.name} could not be injected: {row['error']}")
            return True
        row["did"] = did
        row["inject_s"] = round(time.monotonic() - began, 3)
        if did:
            self.injected[nemesis.name] += 1
        value = did if isinstance(did, dict) else {"did": did}
        self._note(nemesis.name, {**value, "id": row["id"], "phase": "injected"})
        return bool(did)

    async def _heal(self, nemesis: InjectedNemesis, row: dict[str, Json]) -> None:
        began = time.monotonic()
        try:
            row["healed"] = await nemesis.heal()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self.errors.append(f"{nemesis.name} could not be healed: {reason}")
        row["heal_s"] = round(time.monotonic() - began, 3)
