"""Lag of consumer groups, and the wait until it is 0. The scenario's clients read the lag."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import trio

from ottla.client.admin_parts.admin_groups import GroupDescription
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.testing.world.harness import HarnessClients, persistently

LOOK_ANYWAY_S = 5.0
"""Virtual seconds after which the groups' lag is requested again even if no instance has sent a
request that changes it. The sessions of members may have expired since then."""

LOOK_EVERY_S = 0.5
"""Virtual seconds between two requests for the lag. Shorter intervals make runs slower."""

CALM_LOOK_COUNT = 2
"""Number of consecutive reads without lag after which a program counts as settled. The program may
still be processing its last records at the first of these reads."""

CONTROL_RECORDS_MAX = 200
"""Largest difference of offsets that may be due to control records of transactions alone. A larger
difference always contains other records, so the range is not read."""

GROUPS_WITH_LAG = ("classic", "consumer")
"""Group types that have a lag, because committed offsets measure their progress."""


class GroupProgress(NamedTuple):
    """Lag of one consumer group, and whether the group is stable."""

    lags: dict[TopicPartition, int]
    """Number of records that the group has not committed, for each partition with lag."""
    is_stable: bool
    """True if the group has assigned partitions and no rebalance is in progress."""


class LagReader:
    """Reader of the lag of consumer groups: the number of records that a group has not
    committed."""

    def __init__(self, clients: HarnessClients) -> None:
        self._clients = clients

    async def of(self, group_id: str) -> GroupProgress:
        """Return the lag of a group in each of its partitions, and whether the group is stable. The
        group's partitions are those with a committed offset and those that are assigned to a
        member."""
        return await persistently(lambda: self._of(group_id))

    async def of_all(self) -> dict[str, GroupProgress]:
        """Return the lag and the stability of each group, by group id. Groups without committed
        offsets, such as share groups, are left out."""
        admin = await self._clients.admin()
        found = {}
        for group in await admin.list_groups():
            if group.type.value in GROUPS_WITH_LAG and group.protocol_type in ("", "consumer"):
                with _ignoring_missing_group():
                    found[group.group_id] = await self._of(group.group_id)
        return found

    async def _of(self, group_id: str) -> GroupProgress:
        admin = await self._clients.admin()
        committed = {
            at: int(one.offset)
            for at, one in (await admin.group_offsets(group_id)).items()
            if one.offset >= 0
        }
        description = await admin.describe_group(group_id)
        partitions = sorted({*committed, *_assigned(description)})
        if not partitions:
            return GroupProgress({}, is_stable=False)
        ends = await self._clients.end_offsets(partitions, "read_committed")
        starts = await self._clients.start_offsets(partitions)
        found = {}
        for at in partitions:
            position = max(committed.get(at, starts[at]), starts[at])
            lag = ends[at] - position
            if 0 < lag <= CONTROL_RECORDS_MAX:
                lag = len(await self._clients.read({at: position}, "read_committed"))
            if lag > 0:
                found[at] = lag
        return GroupProgress(found, is_stable=description.state in ("Stable", "Empty"))

    async def has_open_transactions(self) -> bool:
        """Return whether a partition of any topic has records of an unfinished transaction."""
        admin = await self._clients.admin()
        topics = await admin.list_topics()
        partitions = [at for topic in topics for at in await self._clients.partitions(topic)]
        if not partitions:
            return False
        stable = await self._clients.end_offsets(partitions, "read_committed")
        written = await self._clients.end_offsets(partitions, "read_uncommitted")
        return any(stable[at] < written[at] for at in partitions)


@contextmanager
def _ignoring_missing_group() -> Iterator[None]:
    # A group may be deleted after it was listed.
    try:
        yield
    except RefusedError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise


def _assigned(description: GroupDescription) -> set[TopicPartition]:
    return {at for member in description.members for at in member.assignment}


class SettleWait:
    """Wait until a program has no work left. The program's state is checked repeatedly."""

    def __init__(
        self,
        lag: LagReader,
        until: Callable[[], Awaitable[bool]] | None,
        change_count: Callable[[], int],
    ) -> None:
        self._lag = lag
        self._until = until
        self._change_count = change_count
        """Function that returns the total number of requests that change a group or a log."""
        self._idle_look: tuple[int, float] | None = None
        """Change count and virtual time, in seconds, at the last check that found work left. None
        if there was no such check."""
        self.reason = "it was not looked at yet"
        """Reason why the program still has work, worded as the end of a sentence."""

    async def is_settled(self) -> bool:
        """Return whether the program has no work left at this moment."""
        if self._until is not None:
            self.reason = "the condition of `until` is false"
            return await self._until()
        change_count, now_s = self._change_count(), trio.current_time()
        if self._idle_look is not None:
            count, at_s = self._idle_look
            if count == change_count and now_s < at_s + LOOK_ANYWAY_S:
                return False  # a look costs several requests and would find the same
        is_settled = await self._has_no_work()
        self._idle_look = None if is_settled else (change_count, now_s)
        return is_settled

    async def _has_no_work(self) -> bool:
        groups = await persistently(self._lag.of_all)
        if not groups:
            self.reason = "no consumer group exists"
            return False
        for group, progress in groups.items():
            if not progress.is_stable:
                self.reason = f"group {group!r} is rebalancing or has no partitions"
                return False
            for at, lag in progress.lags.items():
                self.reason = f"group {group!r} has a lag of {lag} in {at}"
                return False
        if await persistently(self._lag.has_open_transactions):
            self.reason = "a transaction is unfinished"
            return False
        return True

    async def wait(self, until_s: float, *, is_done: Callable[[], bool]) -> bool:
        """Wait until the program is settled, `is_done` returns True, or the virtual time `until_s`
        is reached. Returns True if the program is settled."""
        calm_count = 0
        while not is_done():
            calm_count = calm_count + 1 if await self.is_settled() else 0
            if calm_count >= CALM_LOOK_COUNT:
                return True
            if trio.current_time() >= until_s:
                return False
            await trio.sleep(LOOK_EVERY_S)
        return False
