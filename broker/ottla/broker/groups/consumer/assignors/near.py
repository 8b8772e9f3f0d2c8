"""Swaps of partitions between two members of a group, so that more members consume partitions with
a replica in their own rack. Pure.

A partition is near if one of its replicas is in the rack of the member that consumes it. A swap
never changes the number of a member's partitions. Kafka 4.4's server-side assignors ignore racks.
The assignors of its Java client use racks, but also prefer balance to racks (KIP-881).
"""

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

from ottla.broker.groups.consumer.assignors.subscription import AssignedSubscription, Racks
from ottla.node.network.steps import StepPace, Steps

T = TypeVar("T", bound=Hashable)


def exchange(
    owners: dict[T, str],
    new: Iterable[T],
    racks: Mapping[T, Racks],
    members: Mapping[str, AssignedSubscription],
    pace: StepPace,
) -> Steps[None]:
    """Swap partitions between the members in `owners`, so that more partitions are near, which
    means that one of their replicas is in the rack of the consuming member. All of these members
    must subscribe to the topics of all partitions in `owners`.

    Two partitions are swapped if both become near. They are also swapped if both are in `new`, one
    of them becomes near, and the second was not near before.
    """
    yield from _exchange_both(owners, racks, members, pace)
    yield from _exchange_new(owners, new, racks, members, pace)
    # The new owners may allow further exchanges. After this no two partitions are left of which
    # both would become near, so that the next computation moves nothing.
    yield from _exchange_both(owners, racks, members, pace)


def _exchange_both(
    owners: dict[T, str],
    racks: Mapping[T, Racks],
    members: Mapping[str, AssignedSubscription],
    pace: StepPace,
) -> Steps[None]:
    waiting: dict[tuple[str, str], deque[T]] = {}
    """Partitions without a replica in their owner's rack. The key consists of the owner's rack and
    the rack of one replica; a partition is listed once for each replica rack."""
    done: set[T] = set()
    for one in list(owners):
        near, rack = racks[one], members[owners[one]].rack
        if pace.is_due(1 + len(near)):
            yield
        if rack is None or rack in near:
            continue
        for other_rack in sorted(near):
            others = waiting.get((other_rack, rack), deque())
            while others and others[0] in done:
                others.popleft()
            if others:
                other = others.popleft()
                done.add(other)
                owners[one], owners[other] = owners[other], owners[one]
                break
        else:
            for other_rack in near:
                waiting.setdefault((rack, other_rack), deque()).append(one)


def _exchange_new(
    owners: dict[T, str],
    new: Iterable[T],
    racks: Mapping[T, Racks],
    members: Mapping[str, AssignedSubscription],
    pace: StepPace,
) -> Steps[None]:
    waiting: dict[str | None, deque[T]] = {}
    """Partitions without a replica in their owner's rack, by the owner's rack."""
    for one in new:
        near, rack = racks[one], members[owners[one]].rack
        if pace.is_due(1 + len(near)):
            yield
        if rack in near:
            continue
        far = one
        for other_rack in sorted(near):
            others = waiting.get(other_rack)
            if others:
                far = others.popleft()
                owners[one], owners[far] = owners[far], owners[one]
                break
        # Now `far` has an owner in this rack.
        if rack not in racks[far]:
            waiting.setdefault(rack, deque()).append(far)
