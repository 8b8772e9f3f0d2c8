"""Closing of client connections whose credential was deleted from the metadata. Pure.

In Kafka, a session continues until its client authenticates again. In Ottla, a session ends when
the metadata image no longer has its user's SCRAM credential, or its delegation token. A changed
password does not end open sessions, so that passwords can be changed while clients work.
"""

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.security.scram import SCRAM_BY_NAME, SCRAM_BY_NUMBER
from ottla.node.authentication.mechanism import SaslReply
from ottla.node.network.dispatch import Peer

TOKEN = "delegation token"

CredentialName = tuple[str, str]
"""Name of a credential in the metadata, as a pair: the SCRAM mechanism and the user, or TOKEN and
the id of a delegation token."""


def credential_name(mechanism: str, reply: SaslReply) -> CredentialName | None:
    """Return the name of the metadata credential with which a client logged in. Returns None if the
    client used no such credential."""
    if reply.token_id is not None:
        return TOKEN, reply.token_id
    if mechanism in SCRAM_BY_NAME and reply.user is not None:
        return mechanism, reply.user
    return None


def revoked(delta: MetadataDelta, image: MetadataImage) -> frozenset[CredentialName]:
    """Return the names of the credentials (of users, and delegation tokens) that a change of the
    metadata deletes."""
    gone = {
        (TOKEN, token_id)
        for token_id in delta.changed_tokens
        if token_id not in image.delegation_tokens
    }
    for number, user in delta.changed_scram_users:
        if user not in image.scram_credentials.get(number, {}) and number in SCRAM_BY_NUMBER:
            gone.add((SCRAM_BY_NUMBER[number].name, user))
    return frozenset(gone)


class LiveSessions:
    """Registry of open connections whose clients logged in with a credential from the metadata.

    The registry is also a metadata publisher, which closes the connections whose credential was
    deleted.
    """

    name = "revoked sessions"

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on
        self._peers: dict[CredentialName, set[Peer]] = {}
        self.ended_count = 0

    def note(self, peer: Peer, credential: CredentialName | None) -> None:
        """Register the credential with which a connection's client has logged in. `credential` is
        None if the metadata does not contain the credential."""
        self.forget(peer)
        peer.credential = credential
        if credential is not None and self._is_on:
            self._peers.setdefault(credential, set()).add(peer)

    def forget(self, peer: Peer) -> None:
        """Stop tracking the credential of a connection that has closed, or whose client
        authenticates again."""
        if peer.credential is None:
            return
        peers = self._peers.get(peer.credential)
        if peers is not None:
            peers.discard(peer)
            if not peers:
                del self._peers[peer.credential]
        peer.credential = None

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Close the connections of clients whose credential was deleted from the metadata."""
        for credential in revoked(delta, image):
            for peer in tuple(self._peers.get(credential, ())):
                self.ended_count += 1
                if peer.disconnect is not None:
                    peer.disconnect(f"the {credential[0]} that its client logged in by is gone")
