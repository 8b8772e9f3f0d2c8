"""Who may ask a node for its metrics, and how the node shows who it is.  Pure."""

import binascii
import hmac
import re
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import field

from ottla.model.errors import ConfigError
from ottla.model.settings.tls import (
    KEYSTORE_LOCATION,
    NONE,
    REQUIRED,
    TRUSTSTORE_LOCATION,
    TlsConfig,
)
from ottla.model.values import frozen

PREFIX = "metrics.prometheus."

TOKEN_CHARS_MIN = 16
"""A shorter token is guessed; a scraper's is made by a machine."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


def parse_token(text: str) -> str:
    """a token of 16 or more of the characters A-Z a-z 0-9 . _ ~ + / -"""
    if len(text) < TOKEN_CHARS_MIN or not _TOKEN.fullmatch(text):
        raise ValueError
    return text


def parse_users(text: str) -> dict[str, str]:
    """a list of NAME:PASSWORD, separated by commas."""
    users: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, password = part.partition(":")
        if not (colon and name and password) or name in users:
            raise ValueError
        users[name] = password
    return users


@frozen(kw_only=True)
class MetricsAccess:
    """The rule of one node's metrics."""

    tls: TlsConfig | None = None
    """None where they are served unencrypted."""
    token: str | None = field(default=None, repr=False)
    users: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def challenge(self) -> str:
        """What is told to who shows nothing: the way in."""
        return 'Basic realm="metrics", charset="UTF-8"' if self.users else 'Bearer realm="metrics"'

    def allows(self, authorization: str) -> bool:
        """Return whether the field `Authorization` of a request opens the way."""
        if self.token is None and not self.users:
            return True
        scheme, _, given = authorization.partition(" ")
        match scheme.lower():
            case "bearer":
                return self.token is not None and _is_same(given.strip(), self.token)
            case "basic":
                return self._is_user(given.strip())
        return False

    def _is_user(self, given: str) -> bool:
        try:
            name, _, password = b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return False
        known = self.users.get(name)
        # An unknown name takes as long as a wrong password.
        return _is_same(password, known or "") and bool(known)


OPEN_ACCESS = MetricsAccess()
"""Metrics for everyone, unencrypted."""


def metrics_access(
    *,
    certificate: str | None,
    trust: str | None,
    token: str | None,
    users: Mapping[str, str],
) -> MetricsAccess:
    """Return the rule that settings come to; ConfigError where one lacks what it needs."""
    if trust is not None and certificate is None:
        raise ConfigError(
            PREFIX + TRUSTSTORE_LOCATION,
            f"is set, and {PREFIX}{KEYSTORE_LOCATION} is not; give a certificate of this node",
        )
    tls = None
    if certificate is not None:
        tls = TlsConfig(
            certificate_location=certificate,
            trust_location=trust,
            client_auth=NONE if trust is None else REQUIRED,
            spellings={
                KEYSTORE_LOCATION: PREFIX + KEYSTORE_LOCATION,
                TRUSTSTORE_LOCATION: PREFIX + TRUSTSTORE_LOCATION,
            },
        )
    return MetricsAccess(tls=tls, token=token, users=users)


def _is_same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())
