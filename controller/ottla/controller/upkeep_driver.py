"""What the active controller does unasked: fence who is silent, elect, give leaderships back.

Each task sleeps, looks whether there is anything to do, and decides it like any request.  On a node
that is not the active controller they find nothing to do.  An error nobody foresaw ends one round
of one task: the next round begins after a rest.
"""

import logging
from collections.abc import Awaitable, Callable

import trio

from ottla.controller import brokers, elections, tokens
from ottla.controller.controller_driver import Controller
from ottla.controller.decision import Decision, decided
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import no_op_record
from ottla.model.ids import NO_OFFSET, Offset
from ottla.model.settings.controller import ControllerConfig
from ottla.model.unexpected_errors import UnexpectedErrors

_LOGGER = logging.getLogger(__name__)

REST_BETWEEN_RUNS_MS = 10
"""Between two full runs of elections, so that requests get their turn."""


REST_AFTER_ERROR_MS = 1_000
"""After an unexpected error: less repeats one that stays in a tight loop, more fences late."""


class Upkeep:
    """The tasks of one controller."""

    def __init__(
        self, controller: Controller, config: ControllerConfig, errors: UnexpectedErrors
    ) -> None:
        self._controller = controller
        self._config = config
        self._errors = errors

    async def run(self) -> None:
        """Be the controller whenever the quorum elects this node, and do all that it must."""
        self._controller.take_part()
        tasks = [
            self._begin_each_turn,
            self._look_at_the_clock,
            self._fence_silent_brokers,
            self._elect_where_nobody_leads,
        ]
        if self._config.auto_leader_rebalance_enable:
            tasks.append(self._give_leaderships_back)
        if self._config.tokens.secret is not None:
            tasks.append(self._remove_expired_tokens)
        if self._config.quorum.idle_interval_ms_max:
            tasks.append(self._move_the_log_when_idle)
        async with trio.open_nursery() as nursery:
            for task in tasks:
                nursery.start_soon(self._keep_up, task)

    async def _keep_up(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task, which does not end by itself; begin it again after an unexpected error."""
        while True:
            try:
                await task()
            except Exception as error:
                self._errors.note("background task", getattr(task, "__name__", task), error)
            await trio.sleep(REST_AFTER_ERROR_MS / 1000)

    async def _begin_each_turn(self) -> None:
        """Have a new cluster's first records written, and what was left half done put right."""
        while True:
            turn = self._controller.turn
            if self._controller.epoch is not None:
                await self._controller.attempt(self._elect, is_long=True)
            await turn.wait()

    async def _look_at_the_clock(self) -> None:
        """Notice when this process stood still: sessions are longer by that."""
        while True:
            self._controller.session_time_ms()
            await trio.sleep(self._controller.sessions.look_interval_ms / 1000)

    async def _fence_silent_brokers(self) -> None:
        """Sleep until the next session could end, or one ends early."""
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
        """Do as much as one decision may; who is not fenced by it is found expired again."""
        now_ms = self._controller.session_time_ms()
        decision = brokers.fence_expired(image, self._config, self._controller.sessions, now_ms)
        if decision.reply:
            self._controller.counts.expired_sessions.value += len(decision.reply)
            ids = ", ".join(map(str, decision.reply))
            _LOGGER.info("fencing brokers %s: their sessions ended", ids)
        return decision.with_reply(True)

    async def _elect_where_nobody_leads(self) -> None:
        while True:
            await trio.sleep(self._config.unclean_leader_election_interval_ms / 1000)
            await self._controller.attempt(self._elect, is_long=True)

    def _elect(self, image: MetadataImage, _next_offset: Offset) -> Decision[None]:
        return decided(image, elections.elect_where_nobody_leads(image, self._config), None)

    async def _give_leaderships_back(self) -> None:
        while True:
            await trio.sleep(self._config.leader_imbalance_check_interval_seconds)
            while await self._controller.attempt(self._rebalance, is_long=True):
                await trio.sleep(REST_BETWEEN_RUNS_MS / 1000)

    def _rebalance(self, image: MetadataImage, _next_offset: Offset) -> Decision[bool]:
        """Give back what one run may, and return whether there may be more."""
        records = elections.rebalance(image, self._config)
        return decided(image, records, len(records) == elections.PREFERRED_ELECTIONS_MAX)

    async def _remove_expired_tokens(self) -> None:
        """Remove delegation tokens whose time is over."""
        while True:
            await trio.sleep(self._config.tokens.check_interval_ms / 1000)
            while await self._controller.attempt(
                lambda image, _: tokens.remove_expired(image, self._controller.wall_ms()),
                is_long=True,
            ):
                await trio.sleep(REST_BETWEEN_RUNS_MS / 1000)

    async def _move_the_log_when_idle(self) -> None:
        """Write a record when nothing else was, so that observers see the log move."""
        controller, seen = self._controller, NO_OFFSET
        while True:
            await trio.sleep(self._config.quorum.idle_interval_ms_max / 1000)
            if controller.epoch is not None and controller.last_appended == seen:
                await controller.attempt(_no_op)
            seen = controller.last_appended


def _no_op(image: MetadataImage, _next_offset: Offset) -> Decision[None]:
    return decided(image, (no_op_record(),), None)
