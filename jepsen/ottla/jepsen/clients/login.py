"""How load clients, and the harness' own questions, log in: one user for both libraries.

It belongs to the task, as `ottla.client.network.login.LOGIN` does, and to all tasks and threads it
starts.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

from ottla.client.network.login import LOGIN
from ottla.client.network.tls import TLS, TlsDialer
from ottla.model.settings.client_security import access_of

NOTHING: Mapping[str, str] = MappingProxyType({})
CONFLUENT_LOGIN: ContextVar[Mapping[str, str]] = ContextVar("confluent_login", default=NOTHING)
"""How clients of librdkafka log in, by its keys."""


@contextmanager
def logged_in(settings: Mapping[str, str]) -> Iterator[None]:
    """Have every client that is opened in the block log in as settings of librdkafka say."""
    access = access_of(settings)
    dialer = None if access.tls is None else TlsDialer(access.tls)
    theirs = CONFLUENT_LOGIN.set(settings)
    login, encryption = LOGIN.set(access.login), TLS.set(dialer)
    try:
        yield
    finally:
        TLS.reset(encryption)
        LOGIN.reset(login)
        CONFLUENT_LOGIN.reset(theirs)
