"""The nemesis of a run: one fault after the other, each healed, each noted in every history.

Faults are dealt from a shuffled deck, so that each named one has its turn before any comes again.
A fault lasts an interval, and the cluster then has as long for itself.
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
"""Of quiet before the first fault: what a healthy cluster does is the measure of the rest."""
JITTER = 0.2
"""Intervals are this much longer or shorter, so that faults fall into step with no timer."""

RETRY_S = 1.0
"""When a fault may not be done now, say because a replica is not in sync yet."""
BREATH_S = 2.0
"""Between the periods of a nemesis that has quiet ones of its own."""

Note = Callable[[str, Json], None]


class InjectedNemesis(Protocol):
    """What is asked of a nemesis here; one with an `interval_s` has periods of its own."""

    @property
    def name(self) -> str:
        """What its faults are called."""
        ...

    async def inject(self, rng: Random) -> Json:
        """Do one fault; return what was done, nothing when it may not be done now."""
        ...

    async def heal(self) -> Json:
        """Undo it."""
        ...


class FaultInjector:
    """Injects faults until its time is over, and leaves none behind."""

    def __init__(
        self, nemeses: Sequence[InjectedNemesis], rng: Random, interval_s: float, note: Note
    ) -> None:
        self.injected: Counter[str] = Counter()
        self.errors: list[str] = []
        self.rows: list[dict[str, Json]] = []
        """What was done, a row a fault, for faults.json."""
        self.now = ""
        """The fault under way, for the progress line."""
        self._nemeses = list(nemeses)
        self._rng = rng
        self._interval_s = interval_s
        self._note = note
        self._deck: list[InjectedNemesis] = []

    async def run(self, seconds: float) -> None:
        """Inject and heal for so long; a fault that is under way at the end is healed."""
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
        """Do one fault from its start to its healing; return the seconds until the next."""
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
            # The last one is healed though the time is over.
            with trio.move_on_after(HEAL_TIMEOUT_S) as scope:
                scope.shield = True
                await self._heal(nemesis, row)
            if scope.cancelled_caught:
                self.errors.append(f"{nemesis.name} was not healed within {HEAL_TIMEOUT_S:g} s")
            told = {"id": row["id"], "phase": "end", "healed": row.get("healed")}
            self._note(nemesis.name, told)
            self.now = ""
        if own_s is not None:
            return BREATH_S
        return self._jittered(self._interval_s) if did else RETRY_S

    async def _inject(self, nemesis: InjectedNemesis, row: dict[str, Json]) -> bool:
        """Do one fault; return whether anything was done, or begun."""
        began = time.monotonic()
        try:
            with trio.fail_after(INJECT_TIMEOUT_S) as scope:
                # Once begun it is done wholly: half a fault could not be healed.
                scope.shield = True
                did = await nemesis.inject(self._rng)
        except Exception as error:
            # Whatever it is: a fault that was not injected is told, and leaves the run undecided.
            row["error"] = f"{type(error).__name__}: {error}"
            self.errors.append(f"{nemesis.name} could not be injected: {row['error']}")
            return True
        row["did"] = did
        row["inject_s"] = round(time.monotonic() - began, 3)
        if did:
            self.injected[nemesis.name] += 1
        told = did if isinstance(did, dict) else {"did": did}
        self._note(nemesis.name, {**told, "id": row["id"], "phase": "injected"})
        return bool(did)

    async def _heal(self, nemesis: InjectedNemesis, row: dict[str, Json]) -> None:
        began = time.monotonic()
        try:
            row["healed"] = await nemesis.heal()
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            self.errors.append(f"{nemesis.name} could not be healed: {told}")
        row["heal_s"] = round(time.monotonic() - began, 3)
