"""`ottla topic reassign --log-dir`: moves replicas to other log directories of their brokers.

A broker moves its replicas itself after an AlterReplicaLogDirs request. Responses to
DescribeLogDirs show the moves in progress.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import trio

from ottla.cli.cluster.moves.move_bars import MoveBar, bars
from ottla.cli.cluster.moves.reassignment_requests import places_of
from ottla.cli.cluster.moves.throttled_moves import throttled_directories
from ottla.cli.cluster.moves.throttles import rate_of
from ottla.cli.common import counted
from ottla.cli.confirmation import confirm_in_loop
from ottla.cli.outcomes import show
from ottla.cli.tables import ByteCount
from ottla.cli.terminal import draw_lines, is_watched, note
from ottla.client.admin import Admin
from ottla.insight.facts.log_dirs_driver import BrokerDirectories, ask
from ottla.model.errors import ConfigError, OttlaError, RefusedError
from ottla.model.ids import NodeId, TopicPartition

LOOK_AGAIN_S = 0.5
COLUMNS = ("TOPIC", "PARTITION", "BROKER", "WAS", "DIRECTORY", "BYTES-TO-COPY")


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryMove:
    """A move of one replica to another log directory of its broker."""

    broker: NodeId
    at: TopicPartition
    was: str
    target: str
    size_bytes: int

    @property
    def key(self) -> tuple[NodeId, TopicPartition]:
        """Broker and partition of the replica that moves."""
        return self.broker, self.at

    @property
    def name(self) -> str:
        """Name of the moved replica in messages: its broker and partition."""
        return f"{self.at} on broker {self.broker}"


async def move_directories(admin: Admin, arguments: argparse.Namespace) -> int:
    """Plan moves of replicas between log directories. If the user confirms, start them and show
    their progress. Returns the exit code."""
    wanted = [_target(text) for text in arguments.log_dir]
    places = await places_of(admin, arguments.names or None)
    partitions = [TopicPartition(one.topic, one.partition) for one in places]
    found = await ask(admin, _named(wanted), partitions)
    for one in found:
        if one.failure:
            note(f"broker {one.broker}: {one.failure}")
    moves = plan(found, wanted)
    if not arguments.yes:
        _show(arguments, moves, [])
    if not moves:
        if arguments.yes:
            _show(arguments, moves, [])
        note("nothing needs to move")
        return 0
    if not await confirm_in_loop(arguments, f"move {counted(len(moves), 'replica')}?"):
        return 0
    rate = _rate_of(arguments)
    brokers = sorted({move.broker for move in moves})
    async with throttled_directories(admin, brokers, rate) as throttle:
        throttle.is_left = arguments.no_wait
        return await _move(admin, arguments, moves)


def _rate_of(arguments: argparse.Namespace) -> int | None:
    text = arguments.log_dir_throttle
    return None if text is None else rate_of("--log-dir-throttle", text)


async def _move(admin: Admin, arguments: argparse.Namespace, moves: Sequence[DirectoryMove]) -> int:
    """Start moves of replicas between log directories, show the moves that have started, and watch
    them until they end. Returns the exit code."""
    refusals = await _begin(admin, moves)
    begun = [move for move in moves if move.key not in refusals]
    if arguments.yes or refusals:
        _show(arguments, begun, list(refusals.values()))
    if not arguments.no_wait:
        return await _watch(admin, begun)
    return 0


def _show(
    arguments: argparse.Namespace, moves: Sequence[DirectoryMove], refusals: Sequence[RefusedError]
) -> None:
    rows = [
        (*move.at, move.broker, move.was, move.target, ByteCount(move.size_bytes)) for move in moves
    ]
    show(arguments, COLUMNS, rows, refusals)


def _target(text: str) -> tuple[NodeId | None, str]:
    """Parse the target log directory `[BROKER:]PATH` of moved replicas. Returns the broker and the
    path. Returns None for the broker if the text has only a path, which then applies to all brokers
    that have this directory."""
    broker, colon, path = text.partition(":")
    if colon and broker.isdecimal():
        return NodeId(int(broker)), path.rstrip("/")
    return None, text.rstrip("/")


def _named(wanted: Iterable[tuple[NodeId | None, str]]) -> list[NodeId]:
    """Return the brokers whose log directories are needed for a plan of moves. Returns an empty
    list, which means all brokers, if the user named a directory without a broker."""
    brokers = [broker for broker, _path in wanted]
    return [] if None in brokers else list(dict.fromkeys(one for one in brokers if one is not None))


def plan(
    found: Iterable[BrokerDirectories], wanted: Sequence[tuple[NodeId | None, str]]
) -> list[DirectoryMove]:
    """Return the moves of replicas to the requested log directories. If `wanted` contains several
    directories for a broker, the last one applies.

    Raises ConfigError if no broker that responded has one of the directories.
    """
    moves = []
    used = set()
    for one in found:
        targets = [(broker, path) for broker, path in wanted if broker in (None, one.broker)]
        present = {directory.path for directory in one.directories}
        known = [target for target in targets if target[1] in present]
        used.update(known)
        if one.failure:
            used.update(target for target in targets if target[0] is not None)
        elif known:
            moves += _moves_on(one, known[-1][1])
    for broker, path in wanted:
        if (broker, path) not in used:
            whose = "no broker has" if broker is None else f"broker {broker} does not have"
            raise ConfigError(
                "--log-dir", f"names {path}, which {whose}; see 'ottla broker logdirs'"
            )
    return sorted(moves, key=lambda move: (move.at, move.broker))


def _moves_on(one: BrokerDirectories, target: str) -> list[DirectoryMove]:
    moving = {
        at: directory.path
        for directory in one.directories
        for at, replica in directory.replicas.items()
        if replica.is_future
    }
    return [
        DirectoryMove(
            broker=one.broker,
            at=at,
            was=directory.path,
            target=target,
            size_bytes=0 if directory.path == target else replica.size_bytes,
        )
        for directory in one.directories
        for at, replica in directory.replicas.items()
        # A replica in its target directory that is moving elsewhere has that move cancelled.
        if not replica.is_future and (directory.path != target or at in moving)
    ]


async def _begin(
    admin: Admin, moves: Collection[DirectoryMove]
) -> dict[tuple[NodeId, TopicPartition], RefusedError]:
    """Request moves between log directories from the brokers of the replicas. Returns the refused
    moves, by broker and partition."""
    by_broker: dict[NodeId, dict[TopicPartition, str]] = defaultdict(dict)
    for move in moves:
        by_broker[move.broker][move.at] = move.target
    outcomes: dict[tuple[NodeId, TopicPartition], RefusedError] = {}

    async def begin(broker: NodeId, targets: Mapping[TopicPartition, str]) -> None:
        try:
            answers = await admin.move_replicas(broker, targets)
        except RefusedError as error:
            answers = dict.fromkeys(targets, error)
        for at, refusal in answers.items():
            if refusal is not None:
                outcomes[broker, at] = RefusedError(
                    refusal.code, f"{at} on broker {broker}: {refusal.message.rstrip('.')}"
                )

    async with trio.open_nursery() as nursery:
        for broker, targets in by_broker.items():
            nursery.start_soon(begin, broker, targets)
    return outcomes


async def _watch(admin: Admin, moves: Sequence[DirectoryMove]) -> int:
    """Draw the progress of moves between log directories until each has ended. Returns 1 if a
    replica did not move, otherwise 0."""
    waiting = {move.key: move for move in moves}
    stayed: list[DirectoryMove] = []
    started, line_count = time.monotonic(), 0
    while waiting:
        brokers = list({move.broker for move in waiting.values()})
        partitions = {move.at for move in waiting.values()}
        try:
            found = await ask(admin, brokers, partitions)
        except OttlaError:
            found = []  # a broker continues the moves that it has started, also after a restart
        drawn = []
        for one in found:
            if one.failure:
                continue
            for move in [move for move in waiting.values() if move.broker == one.broker]:
                part = part_of(move, one)
                if part is None:
                    stayed.append(move)
                if part is None or part == 1.0:
                    del waiting[move.key]
                else:
                    drawn.append(MoveBar(part, move.name, move.target))
        if is_watched():
            lines = bars(drawn, len(moves), "replica") if waiting else []
            draw_lines(lines, line_count_before=line_count)
            line_count = len(lines)
        if waiting:
            await trio.sleep(LOOK_AGAIN_S)
    for move in stayed:
        note(f"{move.name} stays in {move.was}: its move ended early; the broker's log says why")
    seconds = time.monotonic() - started
    if moves:
        note(f"{counted(len(moves) - len(stayed), 'replica')} moved in {seconds:.1f} s")
    return 1 if stayed else 0


def part_of(move: DirectoryMove, one: BrokerDirectories) -> float | None:
    """Return the copied fraction of a move between log directories, from 0 to 1, or None if the
    move has ended."""
    size_bytes, copied_bytes = 0, None
    for directory in one.directories:
        replica = directory.replicas.get(move.at)
        if replica is None:
            continue
        if directory.path == move.target:
            if not replica.is_future:
                return 1.0
            copied_bytes = replica.size_bytes
        elif not replica.is_future:
            size_bytes = replica.size_bytes
    if copied_bytes is None:
        return None
    return min(0.999, copied_bytes / size_bytes) if size_bytes else 0.0
