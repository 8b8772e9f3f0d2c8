"""Parses the text form of a controller, `id@host:port:directoryId`, as in Kafka's
`--initial-controllers`."""

from ottla.model.ids import NodeId
from ottla.model.settings.endpoints import parse_address
from ottla.node.identity import CONTROLLER_LISTENER
from ottla.raft.voters import Voter, VoterEndpoint
from ottla.storage.directories.meta_properties import uuid_from_text


def voter_of(text: str, listener: str = CONTROLLER_LISTENER) -> Voter:
    """Parse a controller's text `id@host:port:directoryId`, and return the controller as a voter.
    The address is its address on the listener named `listener`.

    A running controller corrects the name of its listener in the voter set by itself. Raises
    ValueError or CorruptDataError if the text has another form.
    """
    identity, _, rest = text.strip().partition("@")
    address, _, directory = rest.rpartition(":")
    host, port = parse_address(address)
    return Voter(
        id=NodeId(int(identity)),
        directory_id=uuid_from_text(directory),
        endpoints=(VoterEndpoint(listener, host, port),),
    )
