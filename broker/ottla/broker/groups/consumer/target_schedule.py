"""Schedules the computation of groups' target assignments, and the joins that wait for a target.
Pure.

A target that is older than its group's epoch is computed again, at most once per assignment
interval (KIP-1263). The computation of a large target takes several event-loop iterations. Members
meanwhile use the previous target, and joins are answered when the new target is ready.
"""

from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple

from ottla.broker.coordinators.backlog import Backlog
from ottla.broker.coordinators.effects import Instant, Responder
from ottla.broker.coordinators.timers import Timers
from ottla.broker.groups.consumer.assigned_changes import AssignedChanges, AssignedGroupT
from ottla.broker.groups.consumer.assigned_group import MemberT
from ottla.broker.groups.consumer.assignors.subscription import Assignor
from ottla.broker.groups.consumer.target_job import TargetJob
from ottla.broker.groups.consumer.topic_view import TopicView
from ottla.broker.groups.timer_names import TimerKind, TimerName


class WaitingJoin(NamedTuple):
    """Request of a joining member that waits until the target assignment for an epoch is
    computed."""

    member_id: str
    epoch: int
    responder: Responder
    on_target: Callable[[Instant], None]
    """Function that is called to answer the request when the target assignment is computed."""


class TargetSchedule(Generic[AssignedGroupT, MemberT]):
    """Target assignments that are being computed, and the requests of joining members that wait for
    them."""

    def __init__(
        self,
        timers: Timers[TimerName],
        changes: AssignedChanges[AssignedGroupT, MemberT],
        topics: TopicView,
        backlog: Backlog,
        *,
        interval_ms: Callable[[str], int],
        assignor_of: Callable[[AssignedGroupT], Assignor],
    ) -> None:
        """Create a schedule without computations. `interval_ms` returns the minimum interval
        between two assignments of one group, in milliseconds. `assignor_of` returns the assignor
        that a group uses now."""
        self._timers = timers
        self._changes = changes
        self._topics = topics
        self._backlog = backlog
        self._interval_ms = interval_ms
        self._assignor_of = assignor_of
        self._jobs: dict[str, TargetJob[AssignedGroupT, MemberT]] = {}
        self._waiting: dict[str, list[WaitingJoin]] = {}
        """Requests of joining members that wait for the target assignment of their epoch, by group
        id."""

    def is_behind(self, group: AssignedGroupT, now: Instant) -> bool:
        """Start to compute a group's target assignment if it is older than the group epoch.

        Returns True if the target is not ready yet: its computation takes several event-loop
        iterations, or must wait for the assignment interval.
        """
        if group.group_epoch <= group.target_epoch:
            return False
        under_way = self._jobs.get(group.group_id)
        if under_way is not None and under_way.group is group:
            return True
        if group.target_ms is not None:
            due_ms = group.target_ms + self._interval_ms(group.group_id)
            if now.mono_ms < due_ms:
                self._timers.set(TimerName(group.group_id, TimerKind.ASSIGNMENT), due_ms)
                return True
        job = TargetJob(group, self._topics.image, self._assignor_of(group), self._changes)
        self._jobs[group.group_id] = job
        return not self._backlog.begin(self._compute(job), now)

    def rename(self, group: AssignedGroupT, old_id: str, new_id: str) -> None:
        """Use the new member id of a static member that joined again under another id."""
        job = self._jobs.get(group.group_id)
        if job is not None and job.group is group:
            job.rename(old_id, new_id)

    def wait(
        self,
        group: AssignedGroupT,
        member_id: str,
        responder: Responder,
        on_target: Callable[[Instant], None],
    ) -> None:
        """Call `on_target` when the target assignment for the group's current epoch is computed, or
        when the member has left. `on_target` is not called if `take_waiting` removes the request
        first."""
        waiting = WaitingJoin(member_id, group.group_epoch, responder, on_target)
        self._waiting.setdefault(group.group_id, []).append(waiting)

    def take_waiting(self, group_id: str | None = None) -> Iterator[Responder]:
        """Remove and yield the callbacks of requests that wait for a target assignment. If
        `group_id` is None, the requests of all groups are included."""
        for each in list(self._waiting) if group_id is None else [group_id]:
            for one in self._waiting.pop(each, []):
                yield one.responder

    def _compute(self, job: TargetJob[AssignedGroupT, MemberT]) -> Iterator[None]:
        """Compute a target assignment in steps, apply it to the group, and answer the requests that
        wait for it."""
        yield from job.steps()
        group = job.group
        if self._jobs.get(group.group_id) is not job:
            return  # Another group has that name now.
        del self._jobs[group.group_id]
        if group.members:  # Otherwise all members left, or the group is of the other kind.
            job.apply()
            group.target_ms = self._backlog.now.mono_ms
        yield from self._answer_waiting(group)

    def _answer_waiting(self, group: AssignedGroupT) -> Iterator[None]:
        waiting = self._waiting.pop(group.group_id, [])
        later = [
            one
            for one in waiting
            if one.epoch > group.target_epoch and one.member_id in group.members
        ]
        if later:
            self._waiting[group.group_id] = later
        for one in waiting:
            if one not in later:
                yield
                one.on_target(self._backlog.now)
        if later:
            yield
            self.is_behind(group, self._backlog.now)
