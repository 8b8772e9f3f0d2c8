"""Interface that the six roles of a replica implement."""

from typing import Protocol

from ottla.model.ids import NodeId
from ottla.raft.effects import OutgoingRequest
from ottla.raft.messages import Response
from ottla.raft.replica import Replica
from ottla.raft.transitions import Role


class RoleState(Protocol):
    """Interface of one role of a replica, together with the role's state. Each change of role
    creates a new object."""

    @property
    def role(self) -> Role:
        """Name of the role, as a member of `Role`."""
        ...

    @property
    def leader_id(self) -> NodeId | None:
        """Node id of the epoch's leader that this role accepts, or None if it accepts no leader."""
        ...

    @property
    def grants_pre_votes(self) -> bool:
        """True if this role grants a pre-vote to a candidate whose log is up to date."""
        ...

    def poll(self, replica: Replica, now_ms: int) -> Role | None:
        """Perform the role's due actions. Then schedule the next action (`replica.wake_at`) and
        return None, or return the next role."""
        ...

    def on_response(
        self, replica: Replica, outgoing: OutgoingRequest, response: Response, now_ms: int
    ) -> None:
        """Process the response to a request that this replica sent in this role. The caller ensures
        that the response's epoch is not above this replica's."""
        ...
