"""Replica moves under a throttle that the command removes when the moves end.

A command that is interrupted or killed leaves its throttle, because its moves continue. The next
`ottla topic reassign --verify` removes the throttles that no move needs, and `ottla status` reports
them until then.
"""

import argparse
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from ottla.cli.cluster.moves.throttle_requests import (
    remove_rates,
    remove_unneeded,
    set_rates,
    set_throttle,
    with_rates,
)
from ottla.cli.cluster.moves.throttles import (
    LOG_DIRS_RATE,
    MovingReplicas,
    rate_of,
    throttle_of,
)
from ottla.cli.common import counted
from ottla.cli.terminal import note
from ottla.client.admin import Admin
from ottla.insight.facts.log_dirs_driver import ask
from ottla.insight.facts.reassignments_driver import ongoing_of
from ottla.model.errors import ConfigError
from ottla.model.ids import NodeId
from ottla.model.settings.storage.throttled_replicas import ThrottledReplicas

VERIFY = "'ottla topic reassign --verify'"
LEFT = f"the moves go on under their throttle; {VERIFY} removes it when they have ended"

NONE_KNOWN: Mapping[str, Mapping[str, ThrottledReplicas]] = {}


@dataclass(slots=True)
class ActiveThrottle:
    """State of the throttle under which a command makes its replica moves."""

    is_left: bool = False
    """True if the throttle remains after the command has ended, because the command does not wait
    for its replica moves. The command sets this field."""


@contextmanager
def _noted_if_it_stays(state: ActiveThrottle) -> Iterator[None]:
    try:
        yield
    except BaseException:  # an interrupted command, too: its moves continue without it
        note(LEFT)
        raise
    if state.is_left:
        note(LEFT)


def rate_asked_for(arguments: argparse.Namespace) -> int | None:
    """Return the throttle that the command's options request for replica moves between brokers, in
    bytes per second. Returns None if the moves are not throttled.

    Raises ConfigError if the throttle is for another kind of move, or if the command starts no
    move.
    """
    if arguments.throttle is None and arguments.log_dir_throttle is None:
        return None
    if arguments.cancel or arguments.verify:
        raise ConfigError("--throttle", "belongs to moves; --cancel and --verify remove it")
    if arguments.log_dir and arguments.throttle is not None:
        raise ConfigError("--throttle", "is for moves between brokers; see --log-dir-throttle")
    if not arguments.log_dir and arguments.log_dir_throttle is not None:
        raise ConfigError("--log-dir-throttle", "is for moves of --log-dir; see --throttle")
    if arguments.dry_run:
        raise ConfigError("--throttle", "has no effect with --dry-run; leave out one of them")
    if arguments.throttle is None:
        return None
    return rate_of("--throttle", arguments.throttle)


@asynccontextmanager
async def throttled(
    admin: Admin, moves: Iterable[MovingReplicas], rate: int | None
) -> AsyncIterator[ActiveThrottle]:
    """Throttle replica moves between brokers during the `async with` block. `rate` is in bytes per
    second. Yields the throttle."""
    state = ActiveThrottle()
    throttle = throttle_of(moves)
    if rate is None or not throttle.brokers:
        yield state
        return
    await set_throttle(admin, throttle, rate)
    with _noted_if_it_stays(state):
        yield state
    if not state.is_left:
        await remove_and_note(admin, list(throttle.lists), known=throttle.lists)


async def remove_and_note(
    admin: Admin,
    topics: Sequence[str] | None,
    *,
    known: Mapping[str, Mapping[str, ThrottledReplicas]] = NONE_KNOWN,
    is_quiet: bool = False,
) -> None:
    """Remove the throttles that no replica move needs, and print a note about them. Only `topics`
    are examined, or all topics if `topics` is None."""
    moving = {one.at for one in await ongoing_of(admin, ())}
    names = await admin.list_topics() if topics is None else topics
    removed = await remove_unneeded(admin, names, moving, known=known)
    directories = await _remove_log_dir_rates(admin) if topics is None else []
    for topic in removed.every:
        note(
            f"{topic} throttles every replica (*), which no move of ours sets; 'ottla config set "
            f"--topic {topic}' changes that"
        )
    if removed or directories:
        parts = []
        if removed.topics:
            parts.append(counted(len(removed.topics), "topic"))
        if brokers := {*removed.brokers, *directories}:
            parts.append(f"broker {', '.join(map(str, sorted(brokers)))}")
        note(f"throttle removed from {' and '.join(parts)}")
    elif not is_quiet:
        note("no throttle to remove" if not moving else "throttles stay that a move needs")


@asynccontextmanager
async def throttled_directories(
    admin: Admin, brokers: Sequence[NodeId], rate: int | None
) -> AsyncIterator[ActiveThrottle]:
    """Throttle moves of replicas between the log directories of brokers during the `async with`
    block. `rate` is in bytes per second. Yields the throttle."""
    state = ActiveThrottle()
    if rate is None or not brokers:
        yield state
        return
    await set_rates(admin, brokers, (LOG_DIRS_RATE,), rate)
    with _noted_if_it_stays(state):
        yield state
    if not state.is_left:
        gone = await _remove_log_dir_rates(admin, brokers)
        note(f"throttle removed from broker {', '.join(map(str, gone))}" if gone else LEFT)


async def _remove_log_dir_rates(
    admin: Admin, brokers: Sequence[NodeId] | None = None
) -> list[NodeId]:
    """Remove the throttle rate of moves between log directories from brokers that have no such
    moves in progress. Returns these brokers."""
    limited = await with_rates(admin, (LOG_DIRS_RATE,))
    asked = [broker for broker in limited if brokers is None or broker in brokers]
    if not asked:
        return []
    idle = [
        one.broker
        for one in await ask(admin, asked)
        if not one.failure
        and not any(
            replica.is_future
            for directory in one.directories
            for replica in directory.replicas.values()
        )
    ]
    await remove_rates(admin, idle, (LOG_DIRS_RATE,))
    return idle
