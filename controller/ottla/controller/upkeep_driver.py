"""Background tasks of the active controller, one for each kind of work.

- When this controller becomes active: writes the first records of a new cluster, and completes
  decisions that an earlier controller left half written.
- Detects suspensions of this process, and extends the sessions of brokers accordingly.
- Fences brokers whose sessions have ended.
- Elects leaders for leaderless partitions, and restores preferred leaders.
- Makes the moves of a balance.
- Removes expired delegation tokens.
- Writes no-op records while the log does not advance.

`Upkeep.run` also allows this controller to become active. Most tasks sleep, check for work, and
decide it like a request. An inactive controller has no work. An unexpected exception ends one round
of one task; the next round starts after a pause.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from ottla.controller.controller_driver import Controller
from ottla.controller.decision import Decision, decided
from ottla.controller.membership import brokers
from ottla.controller.replication import balance_moves, balance_plan, elections
from ottla.controller.replication.balance_plan import stored_moves
from ottla.controller.security import tokens
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import no_op_record
from ottla.model.balance.pace import BalancePace
from ottla.model.ids import NO_OFFSET, Offset
from ottla.model.settings.controller import ControllerConfig
from ottla.model.unexpected_errors import UnexpectedErrors

_LOGGER = logging.getLogger(__name__)

REST_BETWEEN_RUNS_MS = 10
"""Pause in ms between two rounds of a background task if work is left after the first round.
Requests are processed during the pause."""


BALANCE_INTERVAL_S = 0.2
"""Interval, in seconds, between two steps of a balance plan. With a longer interval, many small
moves of partitions take longer. With a shorter one, each step examines the same moves again."""

BALANCE_PACE_INTERVAL_S = 5.0
"""Interval in seconds between two adjustments of a balance plan's replication throttle. Brokers
report the latency of producers with each heartbeat, by default every 2 s."""

BALANCE_IDLE_INTERVAL_S = 1.0
"""Interval, in seconds, between two checks for a balance plan, and between two samples of the
latency of producers."""

REST_AFTER_ERROR_MS = 1_000
"""Pause in ms of a background task after an unexpected exception. With a shorter one, a lasting
error repeats in a tight loop; with a longer one, fencing is delayed."""


class Upkeep:
    """Background tasks of one controller, such as fencing brokers and electing leaders."""

    def __init__(
        self, controller: Controller, config: ControllerConfig, errors: UnexpectedErrors
    ) -> None:
        self._controller = controller
        self._config = config
        self._errors = errors

    async def run(self) -> None:
        """Allow this controller to become active whenever the quorum elects this node, and run all
        background tasks."""
        self._controller.allow_activation()
        tasks = [
            self._begin_each_turn,
            self._extend_sessions_after_stop,
            self._fence_silent_brokers,
            self._elect_leaderless,
            self._balance,
        ]
        if self._config.auto_leader_rebalance_enable:
            tasks.append(self._restore_preferred_leaders)
        if self._config.tokens.secret is not None:
            tasks.append(self._remove_expired_tokens)
        if self._config.quorum.idle_interval_ms_max:
            tasks.append(self._write_no_ops)
        async with trio.open_nursery() as nursery:
            for task in tasks:
                nursery.start_soon(self._keep_running, task)

    async def _keep_running(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run an endless background task, and restart it after a pause if it raises an unexpected
        exception."""
        while True:
            try:
                await task()
            except Exception as error:
                self._errors.note("background task", getattr(task, "__name__", task), error)
            await trio.sleep(REST_AFTER_ERROR_MS / 1000)

    async def _begin_each_turn(self) -> None:
        """Prepare the metadata whenever this controller becomes active. Writes the first records of
        a new cluster, and completes decisions that an earlier controller has written only in
        part."""
        while True:
            turn = self._controller.turn
            if self._controller.epoch is not None:
                await self._controller.attempt(self._elect, is_long=True)
            await turn.wait()

    async def _extend_sessions_after_stop(self) -> None:
        """Detect suspensions of this process (SIGSTOP, a paused VM), and extend all brokers'
        sessions by the suspension's length."""
        while True:
            self._controller.session_time_ms()
            await trio.sleep(self._controller.sessions.look_interval_ms / 1000)

    async def _fence_silent_brokers(self) -> None:
        """Wait until the session of a broker has expired or was ended early, and fence the
        broker."""
        controller, sessions = self._controller, self._controller.sessions
        while True:
            ended = controller.session_ended
            now_ms = controller.session_time_ms()
            silent = () if controller.epoch is None else sessions.expired(controller.image, now_ms)
            if silent:
                has_fenced = await controller.attempt(self._fence, is_long=True)
                if has_fenced:
                    continue
            latest_ms = now_ms + sessions.session_timeout_ms
            expiry_ms = sessions.next_expiry_ms(controller.image)
            wake_ms = latest_ms if expiry_ms is None else min(expiry_ms, latest_ms)
            with trio.move_on_after(max(1, wake_ms - now_ms) / 1000):
                await ended.wait()

    def _fence(self, image: MetadataImage, _next_offset: Offset) -> Decision[bool]:
        """Return the decision that fences brokers whose sessions have expired, up to the limit of
        one decision. The reply is always True: the caller then fences the remaining brokers with a
        further decision."""
        now_ms = self._controller.session_time_ms()
        decision = brokers.fence_expired(image, self._config, self._controller.sessions, now_ms)
        if decision.reply:
            self._controller.counts.expired_sessions.value += len(decision.reply)
            ids = ", ".join(map(str, decision.reply))
            _LOGGER.info("fencing brokers %s: their sessions ended", ids)
        return decision.with_reply(True)

    async def _elect_leaderless(self) -> None:
        while True:
            await trio.sleep(self._config.unclean_leader_election_interval_ms / 1000)
            await self._controller.attempt(self._elect, is_long=True)

    def _elect(self, image: MetadataImage, _next_offset: Offset) -> Decision[None]:
        return decided(image, elections.elect_leaderless(image, self._config), None)

    async def _restore_preferred_leaders(self) -> None:
        while True:
            await trio.sleep(self._config.leader_imbalance_check_interval_seconds)
            while await self._controller.attempt(self._rebalance, is_long=True):
                await trio.sleep(REST_BETWEEN_RUNS_MS / 1000)

    def _rebalance(self, image: MetadataImage, _next_offset: Offset) -> Decision[bool]:
        """Return the decision that restores preferred leaders, up to the limit of one decision. The
        reply is True if there may be more."""
        records = elections.rebalance(image, self._config)
        return decided(image, records, len(records) == elections.PREFERRED_ELECTIONS_MAX)

    async def _balance(self) -> None:
        """Start moves of the balance plan in the metadata log whenever earlier moves are complete,
        and adapt the throttle of the plan."""
        controller = self._controller
        pace = BalancePace()
        paced_at = noted_at = trio.current_time()
        was_idle = False
        while True:
            has_plan = controller.epoch is not None and stored_moves(controller.image)
            now = trio.current_time()
            if not has_plan:
                pace.note_idle(controller.sessions.slowest_produce_p99_us())
                paced_at = noted_at = now
            elif was_idle:
                await controller.attempt(partial(self._first_rate, pace), is_long=True)
            else:
                if now >= noted_at + BALANCE_IDLE_INTERVAL_S:
                    noted_at = now
                    pace.note_moving(controller.sessions.slowest_produce_p99_us())
                if now >= paced_at + BALANCE_PACE_INTERVAL_S:
                    paced_at = now
                    await controller.attempt(partial(self._next_rate, pace), is_long=True)
            was_idle = controller.epoch is not None and not has_plan
            if has_plan:
                await controller.attempt(self._next_moves, is_long=True)
            await trio.sleep(BALANCE_INTERVAL_S if has_plan else BALANCE_IDLE_INTERVAL_S)

    def _first_rate(
        self, pace: BalancePace, image: MetadataImage, _next_offset: Offset
    ) -> Decision[None]:
        if not stored_moves(image):
            return decided(image, (), None)
        lowest, highest = balance_plan.rate_bounds(image)
        rate = pace.first_rate(lowest=lowest, highest=highest)
        return decided(image, balance_plan.rate_records(image, rate), None)

    def _next_rate(
        self, pace: BalancePace, image: MetadataImage, _next_offset: Offset
    ) -> Decision[None]:
        if not stored_moves(image):
            return decided(image, (), None)
        lowest, highest = balance_plan.rate_bounds(image)
        rate = pace.next_rate(
            balance_plan.rate_in_force(image),
            lowest=lowest,
            highest=highest,
            under_replicated=balance_plan.under_replicated_count(image),
        )
        return decided(image, balance_plan.rate_records(image, rate), None)

    def _next_moves(self, image: MetadataImage, _next_offset: Offset) -> Decision[None]:
        return decided(image, balance_moves.advance(image, self._config), None)

    async def _remove_expired_tokens(self) -> None:
        """Remove expired delegation tokens periodically, until cancelled."""
        while True:
            await trio.sleep(self._config.tokens.check_interval_ms / 1000)
            while await self._controller.attempt(
                lambda image, _: tokens.remove_expired(image, self._controller.wall_ms()),
                is_long=True,
            ):
                await trio.sleep(REST_BETWEEN_RUNS_MS / 1000)

    async def _write_no_ops(self) -> None:
        """Write a no-op record to the metadata log if no other record was written for a while.
        Observers then see that the log advances."""
        controller, seen = self._controller, NO_OFFSET
        while True:
            await trio.sleep(self._config.quorum.idle_interval_ms_max / 1000)
            if controller.epoch is not None and controller.last_appended == seen:
                await controller.attempt(_no_op)
            seen = controller.last_appended


def _no_op(image: MetadataImage, _next_offset: Offset) -> Decision[None]:
    return decided(image, (no_op_record(),), None)
