"""What the core asks of each role; the roles' files are the six answers."""

from typing import Protocol

from ottla.model.ids import NodeId
from ottla.raft.effects import Outgoing
from ottla.raft.messages import Response
from ottla.raft.replica import Replica
from ottla.raft.transitions import Role


class RoleState(Protocol):
    """One role with what it must remember; a change of role makes a new one."""

    @property
    def role(self) -> Role:
        """Which role this is."""
        ...

    @property
    def leader_id(self) -> NodeId | None:
        """The leader of this epoch as far as this role believes in it."""
        ...

    @property
    def grants_pre_votes(self) -> bool:
        """Whether this role would welcome an election, given a good enough candidate."""
        ...

    def poll(self, replica: Replica, now_ms: int) -> Role | None:
        """Do what is due, say when more will be (`replica.wake_at`), or name the next role."""
        ...

    def on_response(
        self, replica: Replica, outgoing: Outgoing, response: Response, now_ms: int
    ) -> None:
        """Take in the answer to a request of this role; its epoch is not above ours."""
        ...
