"""Text form of a balance plan, as it is stored in the metadata log. Pure.

The text is the value of the cluster-wide setting `ottla.balance.plan`: the moves that are not
complete yet, separated by semicolons. `orders:0:1,2>1,3` moves partition 0 of topic orders from
brokers 1 and 2 to brokers 1 and 3. The plan is a setting instead of a new kind of metadata record,
because nodes of the previous release would stop at an unknown record.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from ottla.model.ids import NodeId, TopicPartition

MOVES_MAX = 1_000
"""Maximum number of moves in a plan. The text of such a plan has about 40 kB, which every node
reads again whenever a move ends. With fewer moves, large clusters need more plans."""

_IDS = r"\d{1,10}(?:,\d{1,10})*"
_MOVE = re.compile(rf"([a-zA-Z0-9._-]{{1,249}}):(\d{{1,10}}):({_IDS})>({_IDS})", re.ASCII)
ID_MAX = (1 << 31) - 1


class StoredMove(NamedTuple):
    """One move in a stored balance plan. A move without a copy elects the first replica as
    leader."""

    at: TopicPartition
    before: tuple[NodeId, ...]
    after: tuple[NodeId, ...]

    @property
    def is_copy(self) -> bool:
        """True if a broker must copy the partition. False if the move is only a leader election."""
        return set(self.before) != set(self.after)

    @property
    def brokers(self) -> set[NodeId]:
        """Brokers that have a replica of the partition before or after the move."""
        return {*self.before, *self.after}

    @property
    def adding(self) -> tuple[NodeId, ...]:
        """Brokers that get a new replica and copy the partition."""
        return tuple(one for one in self.after if one not in self.before)

    @property
    def removing(self) -> tuple[NodeId, ...]:
        """Brokers that delete the partition after the move."""
        return tuple(one for one in self.before if one not in self.after)


def moves_text(moves: Iterable[StoredMove]) -> str:
    """Return the text form of moves, as stored in a balance plan."""
    return ";".join(
        f"{one.at.topic}:{one.at.partition}:{_ids(one.before)}>{_ids(one.after)}" for one in moves
    )


@lru_cache(maxsize=8)
def parse_moves(text: str) -> tuple[StoredMove, ...]:
    """moves such as orders:0:1,2>1,3, separated by semicolons, each partition once.

    Returns the moves in the text form of a balance plan. Raises ValueError if the text is
    malformed. The first line above describes the valid texts in error messages.
    """
    # The definition of the setting quotes this docstring as the description of allowed values.
    parts = text.split(";") if text else []
    if len(parts) > MOVES_MAX:
        raise ValueError(text)
    moves = tuple(map(_parse_move, parts))
    if len({one.at for one in moves}) < len(moves):
        raise ValueError(text)
    return moves


def _parse_move(text: str) -> StoredMove:
    found = _MOVE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    topic, partition = found[1], int(found[2])
    before, after = (tuple(NodeId(int(one)) for one in found[at].split(",")) for at in (3, 4))
    is_distinct = all(len(set(ids)) == len(ids) for ids in (before, after))
    if len(before) != len(after) or not is_distinct or max(*before, *after, partition) > ID_MAX:
        raise ValueError(text)
    return StoredMove(TopicPartition(topic, partition), before, after)


def _ids(brokers: Iterable[NodeId]) -> str:
    return ",".join(map(str, brokers))
