"""Sessions whose credential is gone: which are to end.  Pure.

Kafka keeps a session until its client logs in again.  Here one ends with the image that has its
user's SCRAM credential, or its delegation token, no longer; a password that is only changed leaves
open sessions alone, so that passwords are changed while clients work.
"""

from ottla.broker.authentication.mechanism import SaslReply
from ottla.broker.network.dispatch import Peer
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.scram import SCRAM_BY_NAME, SCRAM_BY_NUMBER

TOKEN = "delegation token"

CredentialName = tuple[str, str]
"""A SCRAM mechanism and its user, or TOKEN and the token's id."""


def credential_name(mechanism: str, reply: SaslReply) -> CredentialName | None:
    """Return by which entry of the metadata a client has logged in, None by none."""
    if reply.token_id is not None:
        return TOKEN, reply.token_id
    if mechanism in SCRAM_BY_NAME and reply.user is not None:
        return mechanism, reply.user
    return None


def revoked(delta: MetadataDelta, image: MetadataImage) -> frozenset[CredentialName]:
    """Return the credentials that are gone with a change."""
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
    """The open connections whose clients logged in by a credential of the metadata.

    As a publisher of the image it ends those whose credential is gone.
    """

    name = "revoked sessions"

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on
        self._peers: dict[CredentialName, set[Peer]] = {}
        self.ended_count = 0

    def note(self, peer: Peer, credential: CredentialName | None) -> None:
        """Note by what a client has logged in."""
        self.forget(peer)
        peer.credential = credential
        if credential is not None and self._is_on:
            self._peers.setdefault(credential, set()).add(peer)

    def forget(self, peer: Peer) -> None:
        """Forget a connection, which has closed or whose client logs in again."""
        if peer.credential is None:
            return
        peers = self._peers.get(peer.credential)
        if peers is not None:
            peers.discard(peer)
            if not peers:
                del self._peers[peer.credential]
        peer.credential = None

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """End the sessions whose credential is gone."""
        for credential in revoked(delta, image):
            for peer in tuple(self._peers.get(credential, ())):
                self.ended_count += 1
                if peer.hang_up is not None:
                    peer.hang_up(f"the {credential[0]} that its client logged in by is gone")
