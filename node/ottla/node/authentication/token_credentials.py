"""Logins with delegation tokens: SCRAM with a token's id as the user and its HMAC as the password.

Pure. A credential is computed when a token is first used for a login, which takes a few ms. The
credential is then cached.
"""

import hmac
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256

from ottla.metadata.image import MetadataImage
from ottla.model.security.delegation_tokens import DelegationToken, token_password
from ottla.model.security.scram import ITERATIONS_MIN, ScramCredential, ScramHash

KEPT_MAX = 10_000
"""Maximum number of cached SCRAM credentials of delegation tokens."""


class TokenCredentials:
    """SCRAM credentials of the delegation tokens in the metadata image. A client logs in with a
    token's id as the user."""

    def __init__(
        self, secret: str, image: Callable[[], MetadataImage | None], wall_ms: Callable[[], int]
    ) -> None:
        self._secret = secret
        self._image = image
        self._wall_ms = wall_ms
        self._kept: OrderedDict[tuple[int, str], ScramCredential] = OrderedDict()

    def token_of(self, token_id: str) -> DelegationToken | None:
        """Return the delegation token with this id if it is valid now, or None."""
        image = self._image()
        found = None if image is None else image.delegation_tokens.get(token_id)
        return found if found is not None and found.holds_at(self._wall_ms()) else None

    def lifetime_ms(self, token: DelegationToken) -> int:
        """Return the milliseconds until a delegation token expires."""
        return max(0, min(token.expires_ms, token.max_ms) - self._wall_ms())

    def credential_of(self, hashing: ScramHash, token: DelegationToken) -> ScramCredential:
        """Return the SCRAM credential of a delegation token, derived from its HMAC as the
        password."""
        key = hashing.number, token.id
        found = self._kept.get(key)
        if found is None:
            salt = hmac.digest(self._secret.encode(), f"salt {token.id}".encode(), sha256)
            password = token_password(self._secret, token.id)
            found = ScramCredential.of_password(hashing, password, salt, ITERATIONS_MIN)
            self._kept[key] = found
            if len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return found
